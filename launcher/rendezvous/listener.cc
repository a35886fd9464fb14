#include "launcher/rendezvous/listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "common/contract/store_address.h"

namespace lockstep::rendezvous {

namespace {

using contract::SocketAddress;

constexpr int kBacklog = 1024;  // the kernel's own limit may be lower
constexpr std::chrono::seconds kLookupLimit{5};
// A launcher that was just killed may still be ending, with its port.
constexpr std::chrono::seconds kEndingLimit{2};
constexpr std::chrono::milliseconds kTryAgain{20};

SocketAddress Wildcard(int family, uint16_t port) {
  SocketAddress address;
  if (family == AF_INET6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = in6addr_any;
    v6.sin6_port = htons(port);
    address.length = sizeof v6;
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(INADDR_ANY);
    v4.sin_port = htons(port);
    address.length = sizeof v4;
  }
  return address;
}

// `alone`: nobody else may have bound it, not even with SO_REUSEADDR. Afterwards others may.
Result<UniqueFd> BindTo(const SocketAddress& address, bool alone = false) {
  UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Status::FromErrno(errno, "socket");
  const int on = 1;
  const int off = 0;
  if (!alone) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.storage.ss_family == AF_INET6) {
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (::bind(fd.get(), address.get(), address.length) != 0) return Status::FromErrno(errno, "bind");
  if (alone) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return fd;
}

// `in_use`, where given, tells whether that alone was in the way.
Result<UniqueFd> BindToAny(const std::vector<SocketAddress>& addresses, bool listening,
                           bool* in_use = nullptr) {
  Status last = Unavailable("no address");
  for (const SocketAddress& address : addresses) {
    errno = 0;
    Result<UniqueFd> socket = BindTo(address);
    if (socket.ok() && listening && ::listen(socket->get(), kBacklog) != 0) {
      socket = Status::FromErrno(errno, "listen");
    }
    if (socket.ok()) return socket;
    if (in_use != nullptr) *in_use = errno == EADDRINUSE;
    last = socket.status();
  }
  return last;
}

// As BindToAny, listening.
Result<UniqueFd> ListenOnAny(const std::vector<SocketAddress>& addresses) {
  const auto deadline = std::chrono::steady_clock::now() + kEndingLimit;
  while (true) {
    bool in_use = false;
    Result<UniqueFd> socket = BindToAny(addresses, /*listening=*/true, &in_use);
    if (socket.ok() || !in_use || std::chrono::steady_clock::now() > deadline) return socket;
    std::this_thread::sleep_for(kTryAgain);
  }
}

constexpr int kFirstPort = 15000;  // below it are those of well-known services
constexpr int kPortAttempts = 200;

// Where the ports begin that the kernel gives to whoever asks for any.
int FirstGivenOut() {
  constexpr int kUsual = 32768;
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0;
  return file >> first && first > 0 ? first : kUsual;
}

}  // namespace

Result<Listener> ListenOn(const std::string& address) {
  const Result<contract::HostPort> target = contract::ParseHostPort(address);
  if (!target.ok()) return target.status();
  std::vector<SocketAddress> addresses;
  if (target->host.empty()) {
    addresses = {Wildcard(AF_INET6, target->port), Wildcard(AF_INET, target->port)};
  } else {
    const contract::NameLookup lookup(*target);
    lookup.Wait(std::chrono::steady_clock::now() + kLookupLimit);
    Result<std::vector<SocketAddress>> found = lookup.Take();
    if (!found.ok())
      return Unavailable("rendezvous: cannot listen on " + address + ": " + found.status().message());
    addresses = std::move(*found);
  }
  Result<UniqueFd> socket = ListenOnAny(addresses);
  if (!socket.ok()) {
    return Unavailable("rendezvous: cannot listen on " + address + ": " + socket.status().message() +
                       "; choose another with --rendezvous HOST:PORT (port 0: any that is free)");
  }
  const SocketAddress local = contract::LocalAddress(socket->get());
  return Listener{.socket = std::move(*socket), .host = local.host(), .port = local.port()};
}

Result<UniqueFd> AcceptFrom(int listener) {
  while (true) {
    UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      const int on = 1;
      ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return socket;
    }
    switch (errno) {
      case EAGAIN:
        return UniqueFd();
      case EMFILE:
      case ENFILE:
      case ENOBUFS:
      case ENOMEM:
        return ResourceExhausted(std::string("accept: ") + std::strerror(errno));
      default:
        break;  // of that connection, which is gone (accept(2)): on to the next
    }
  }
}

Result<PortReservation> PortReservation::Create(int count) {
  PortReservation reservation;
  if (count == 1) {
    Result<UniqueFd> socket = BindToAny({Wildcard(AF_INET6, 0), Wildcard(AF_INET, 0)}, /*listening=*/false);
    if (!socket.ok()) return socket.status();
    reservation.port_ = contract::LocalAddress(socket->get()).port();
    reservation.sockets_.push_back(std::move(*socket));
    return reservation;
  }
  const int last = FirstGivenOut() - count;
  std::random_device random;
  Status why;
  for (int attempt = 0; attempt < kPortAttempts && last >= kFirstPort; ++attempt) {
    const auto first = static_cast<uint16_t>(std::uniform_int_distribution(kFirstPort, last)(random));
    reservation.sockets_.clear();
    for (int i = 0; i < count; ++i) {
      const auto port = static_cast<uint16_t>(first + i);
      Result<UniqueFd> socket = BindTo(Wildcard(AF_INET6, port), /*alone=*/true);
      if (!socket.ok()) socket = BindTo(Wildcard(AF_INET, port), /*alone=*/true);
      why = socket.status();
      if (!why.ok()) break;
      reservation.sockets_.push_back(std::move(*socket));
    }
    if (!why.ok()) continue;
    reservation.port_ = first;
    return reservation;
  }
  return Unavailable("no " + std::to_string(count) + " free ports in a row from " +
                     std::to_string(kFirstPort) + " to " + std::to_string(FirstGivenOut() - 1) +
                     (why.ok() ? "" : ": " + why.message()));
}

}  // namespace lockstep::rendezvous
