#pragma once

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::trainer::collectives {

// Which peers' connections are over, without waiting for it. Gloo tells that to the messages that have not
// begun; one that is half through when its peer dies waits until its time is over, unless somebody looks
// here. A message that never comes is awaited from each peer, and is the first to know.
class LostPeers {
 public:
  // Of all ranks of `context`, which are connected and use `slot` for nothing else.
  LostPeers(gloo::Context& context, uint64_t slot);

  // On one thread at a time. Once true it stays so.
  bool Has(int peer);

 private:
  std::byte nothing_{};
  // By rank; none for this one and those that are known to be lost.
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> awaited_;
  int self_;
};

}  // namespace lockstep::trainer::collectives
