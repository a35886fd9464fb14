#include "trainer/collectives/gloo/lost_peers.h"

#include <chrono>
#include <exception>

namespace lockstep::trainer::collectives {

LostPeers::LostPeers(gloo::Context& context, uint64_t slot)
    : awaited_(static_cast<size_t>(context.size)), self_(context.rank) {
  for (int peer = 0; peer < context.size; ++peer) {
    if (peer == self_) continue;
    auto buffer = context.createUnboundBuffer(&nothing_, sizeof nothing_);
    try {
      buffer->recv(peer, slot);
    } catch (const std::exception&) {
      continue;  // lost by now
    }
    awaited_[static_cast<size_t>(peer)] = std::move(buffer);
  }
}

bool LostPeers::Has(int peer) {
  if (peer == self_) return false;
  auto& awaited = awaited_[static_cast<size_t>(peer)];
  if (awaited == nullptr) return true;
  try {
    // Returns at once: aborted, or with what has happened to the connection.
    awaited->abortWaitRecv();
    awaited->waitRecv(std::chrono::hours(1));
    return false;
  } catch (const std::exception&) {
    awaited.reset();
    return true;
  }
}

}  // namespace lockstep::trainer::collectives
