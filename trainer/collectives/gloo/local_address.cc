#include "trainer/collectives/gloo/local_address.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "common/unique_fd.h"
#include "trainer/error.h"

namespace lockstep::trainer::collectives {
namespace {

std::string HostOf(std::string_view peer) {
  if (peer.starts_with('[')) return std::string(peer.substr(1, peer.find(']') - 1));
  const bool bare_v6 = peer.find(':') != peer.rfind(':');
  return std::string(bare_v6 ? peer : peer.substr(0, peer.find(':')));
}

}  // namespace

std::string LocalAddressTowards(std::string_view peer) {
  const auto fail = [&](const std::string& why) {
    throw RendezvousFailed("finding this machine's address towards " + std::string(peer) + ": " + why);
  };
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  // Any port: connecting a datagram socket only asks the routing table.
  if (const int error = ::getaddrinfo(HostOf(peer).c_str(), "9", &hints, &found); error != 0) {
    fail(::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* candidate = found; candidate != nullptr; candidate = candidate->ai_next) {
    const UniqueFd socket(::socket(candidate->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    if (!socket || ::connect(socket.get(), candidate->ai_addr, candidate->ai_addrlen) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&local), &length) != 0) {
      error = errno;
      continue;
    }
    char host[NI_MAXHOST];
    if (::getnameinfo(reinterpret_cast<sockaddr*>(&local), length, host, sizeof host, nullptr, 0,
                      NI_NUMERICHOST) == 0) {
      return host;
    }
  }
  fail(std::strerror(error));
  return {};
}

}  // namespace lockstep::trainer::collectives
