#include "trainer/parameter_server/connection.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "common/contract/authentication.h"
#include "common/contract/store_address.h"
#include "trainer/collectives/gloo/local_address.h"

namespace lockstep::trainer::parameter_server {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A machine that vanishes without a word is noticed after about half a minute.
void KeepAlive(int fd) {
  const int on = 1, idle = 10, interval = 5, count = 4;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

void WaitFor(int fd, short events, Deadline deadline) {
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    pollfd poll{.fd = fd, .events = events, .revents = 0};
    const int ready = ::poll(&poll, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (ready > 0) return;
    if (ready == 0 && Clock::now() >= deadline) throw ConnectionLost("no answer in time");
    if (ready < 0 && errno != EINTR) throw ConnectionLost(std::string("poll: ") + std::strerror(errno));
  }
}

[[noreturn]] void ThrowLost(int error) { throw ConnectionLost(std::strerror(error)); }

UniqueFd ConnectTo(const contract::SocketAddress& address, Deadline deadline) {
  UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) ThrowLost(errno);
  if (::connect(fd.get(), address.get(), address.length) != 0) {
    if (errno != EINPROGRESS) ThrowLost(errno);
    WaitFor(fd.get(), POLLOUT, deadline);
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) ThrowLost(error);
  }
  if (contract::IsConnectedToItself(fd.get())) ThrowLost(ECONNREFUSED);
  return fd;
}

std::string AddressOf(const std::string& interface) {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) throw RendezvousFailed(std::string("getifaddrs: ") + std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(found, &::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family || interface != each->ifa_name) {
        continue;
      }
      contract::SocketAddress address;
      address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      std::memcpy(&address.storage, each->ifa_addr, address.length);
      return address.host();
    }
  }
  throw RendezvousFailed("the interface " + interface +
                         ": this machine has none of that name with an address");
}

}  // namespace

Connection::Connection(UniqueFd socket) : socket_(std::move(socket)) { KeepAlive(socket_.get()); }

Connection Connection::Connect(const std::string& address, const std::string& id, const Membership& self,
                               Deadline deadline) {
  const Result<contract::HostPort> target = contract::ParseHostPort(address);
  if (!target.ok()) throw ConnectionLost(target.status().message());
  const contract::NameLookup lookup(*target);
  lookup.Wait(deadline);
  const auto addresses = lookup.Take();
  if (!addresses.ok()) throw ConnectionLost(addresses.status().message());
  Connection connection(ConnectTo(addresses->front(), deadline));

  contract::ClientHandshake handshake(self.token, {.kind = contract::PeerKind::kRank,
                                                   .job = self.job,
                                                   .generation = self.generation,
                                                   .index = self.rank});
  connection.Send(handshake.hello(), deadline);
  const Result<std::string> answer =
      handshake.Answer(connection.Receive(deadline, contract::kMaxHandshakeFrameBytes));
  if (!answer.ok()) throw ConnectionLost(answer.status().message());
  if (handshake.store_id() != id) throw ConnectionLost("another server listens there");
  connection.Send(*answer, deadline);
  const auto welcome = contract::DecodeWelcome(connection.Receive(deadline));
  if (!welcome.ok()) throw ConnectionLost(welcome.status().message());
  if (!welcome->status.ok()) throw ConnectionLost(welcome->status.message());
  return connection;
}

bool Connection::Admit(const std::string& raw_id, const Membership& self, Deadline deadline) {
  contract::ServerHandshake handshake(self.token, raw_id);
  const auto challenge = handshake.Challenge(Receive(deadline, contract::kMaxHandshakeFrameBytes));
  if (!challenge.ok()) return false;
  Send(*challenge, deadline);
  if (!handshake.Verify(Receive(deadline, contract::kMaxHandshakeFrameBytes)).ok()) return false;
  contract::Welcome welcome{.generation = self.generation};
  const contract::PeerIdentity& peer = handshake.identity();
  if (peer.kind != contract::PeerKind::kRank || peer.job != self.job || peer.generation != self.generation) {
    welcome.status = PermissionDenied("of another job or generation");
  }
  Send(contract::EncodeWelcome(welcome), deadline);
  return welcome.status.ok();
}

void Connection::SendWith(std::string_view frame, const float* floats, std::span<const Piece> pieces,
                          Deadline deadline) {
  std::vector<iovec> parts;
  if (!frame.empty()) parts.push_back({const_cast<char*>(frame.data()), frame.size()});
  for (const Piece& piece : pieces) {
    if (piece.size() == 0) continue;
    parts.push_back(
        {const_cast<float*>(floats + piece.begin), static_cast<size_t>(piece.size()) * sizeof(float)});
  }
  for (size_t next = 0; next < parts.size();) {
    msghdr message{};
    message.msg_iov = &parts[next];
    message.msg_iovlen = std::min<size_t>(parts.size() - next, IOV_MAX);
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) {
      WaitFor(socket_.get(), POLLOUT, deadline);
      continue;
    }
    if (sent < 0 && errno != EINTR) ThrowLost(errno);
    auto left = static_cast<size_t>(std::max<ssize_t>(sent, 0));
    while (next < parts.size() && left >= parts[next].iov_len) left -= parts[next++].iov_len;
    if (next == parts.size()) break;
    parts[next].iov_base = static_cast<char*>(parts[next].iov_base) + left;
    parts[next].iov_len -= left;
  }
}

void Connection::SendFloats(std::span<const float> floats, Deadline deadline) {
  const Piece all{0, static_cast<int64_t>(floats.size())};
  SendWith({}, floats.data(), {&all, 1}, deadline);
}

void Connection::Read(char* bytes, size_t count, Deadline deadline) {
  while (count > 0) {
    const ssize_t got = ::recv(socket_.get(), bytes, count, 0);
    if (got > 0) {
      bytes += got;
      count -= static_cast<size_t>(got);
    } else if (got == 0) {
      throw ConnectionLost("the other end closed the connection");
    } else if (errno == EAGAIN) {
      WaitFor(socket_.get(), POLLIN, deadline);
    } else if (errno != EINTR) {
      ThrowLost(errno);
    }
  }
}

std::string Connection::Receive(Deadline deadline, size_t max_bytes) {
  unsigned char header[contract::kFrameHeaderBytes];
  Read(reinterpret_cast<char*>(header), sizeof header, deadline);
  size_t size = 0;
  for (const unsigned char byte : header) size = size << 8 | byte;
  if (size == 0 || size > max_bytes) throw ConnectionLost("a frame of " + std::to_string(size) + " bytes");
  std::string body(size, '\0');
  Read(body.data(), size, deadline);
  return body;
}

void Connection::ReceiveFloats(float* floats, std::span<const Piece> pieces, Deadline deadline) {
  for (const Piece& piece : pieces) {
    Read(reinterpret_cast<char*>(floats + piece.begin), static_cast<size_t>(piece.size()) * sizeof(float),
         deadline);
  }
}

void Connection::ReceiveFloats(std::span<float> floats, Deadline deadline) {
  Read(reinterpret_cast<char*>(floats.data()), floats.size_bytes(), deadline);
}

void Connection::Interrupt() noexcept { ::shutdown(socket_.get(), SHUT_RDWR); }

bool Connection::closed_by_peer() const {
  char byte = 0;
  const ssize_t got = ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

Listener Listen(const std::string& interface, const std::string& reach) {
  const std::string host = interface.empty() ? collectives::LocalAddressTowards(reach) : AddressOf(interface);
  const auto fail = [&](const char* what) {
    throw RendezvousFailed("parameter server: " + std::string(what) + " on " + host + ": " +
                           std::strerror(errno));
  };
  const contract::NameLookup lookup({.host = host, .port = 0});
  const auto addresses = lookup.Take();
  if (!addresses.ok()) throw RendezvousFailed("parameter server: " + addresses.status().message());
  const contract::SocketAddress& address = addresses->front();
  Listener listener{
      .socket = UniqueFd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      .address = ""};
  if (!listener.socket) fail("socket");
  if (::bind(listener.socket.get(), address.get(), address.length) != 0) fail("bind");
  if (::listen(listener.socket.get(), SOMAXCONN) != 0) fail("listen");
  listener.address = contract::FormatHostPort(host, contract::LocalAddress(listener.socket.get()).port());
  return listener;
}

}  // namespace lockstep::trainer::parameter_server
