#include "common/contract/store_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <charconv>
#include <cstring>

namespace lockstep::contract {

Result<HostPort> ParseHostPort(std::string_view text) {
  const auto wrong = [&] {
    return InvalidArgument("address \"" + std::string(text) +
                           "\": expected HOST:PORT, as in node1:4567, 10.0.0.1:4567 or [fd00::1]:4567");
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong();
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.starts_with('[') != host.ends_with(']')) return wrong();
  if (host.starts_with('[')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return wrong();  // a bare IPv6 address: which colon is the port's?
  }
  if (host.size() > 255 || host.find('\0') != std::string_view::npos) return wrong();
  HostPort result{.host = std::string(host)};
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), result.port);
  if (port.empty() || error != std::errc() || end != port.data() + port.size()) return wrong();
  return result;
}

std::string FormatHostPort(std::string_view host, uint16_t port) {
  const bool brackets = host.find(':') != std::string_view::npos;
  return (brackets ? "[" + std::string(host) + "]" : std::string(host)) + ":" + std::to_string(port);
}

std::string SocketAddress::host() const {
  if (storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      std::array<char, INET_ADDRSTRLEN> text{};
      ::inet_ntop(AF_INET, v6.sin6_addr.s6_addr + 12, text.data(), text.size());
      return text.data();
    }
  }
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(get(), length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text.data();
}

uint16_t SocketAddress::port() const {
  return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

SocketAddress LocalAddress(int socket) {
  SocketAddress address{.length = sizeof(sockaddr_storage)};
  if (::getsockname(socket, address.get(), &address.length) != 0) address.length = 0;
  return address;
}

SocketAddress PeerAddress(int socket) {
  SocketAddress address{.length = sizeof(sockaddr_storage)};
  if (::getpeername(socket, address.get(), &address.length) != 0) address.length = 0;
  return address;
}

bool IsConnectedToItself(int socket) {
  const SocketAddress mine = LocalAddress(socket);
  const SocketAddress theirs = PeerAddress(socket);
  return mine.length > 0 && mine.length == theirs.length &&
         std::memcmp(&mine.storage, &theirs.storage, mine.length) == 0;
}

// What the resolver's thread reads and writes: it must stay where it is until the thread is done with it.
struct NameLookup::Request {
  std::string host;
  std::string service;
  addrinfo hints{};
  gaicb block{};
  bool asked = false;  // of the resolver; else `error` and block.ar_result are the answer
  int error = 0;

  ~Request() {
    if (block.ar_result != nullptr) ::freeaddrinfo(block.ar_result);
  }
};

NameLookup::NameLookup(const HostPort& address) : request_(std::make_unique<Request>()) {
  Request& request = *request_;
  request.host = address.host;
  request.service = std::to_string(address.port);
  request.hints.ai_family = AF_UNSPEC;
  request.hints.ai_socktype = SOCK_STREAM;
  request.hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | (request.host.empty() ? AI_PASSIVE : 0);
  const char* name = request.host.empty() ? nullptr : request.host.c_str();
  request.error = ::getaddrinfo(name, request.service.c_str(), &request.hints, &request.block.ar_result);
  if (request.error != EAI_NONAME) return;

  request.hints.ai_flags = AI_NUMERICSERV;
  request.block = {};
  request.block.ar_name = request.host.c_str();
  request.block.ar_service = request.service.c_str();
  request.block.ar_request = &request.hints;
  gaicb* list[] = {&request.block};
  request.error = ::getaddrinfo_a(GAI_NOWAIT, list, 1, nullptr);
  request.asked = request.error == 0;
}

NameLookup::~NameLookup() {
  if (!request_->asked) return;
  ::gai_cancel(&request_->block);
  // The resolver is at work on it and cannot be stopped: it keeps these few bytes.
  if (::gai_error(&request_->block) == EAI_INPROGRESS) (void)request_.release();
}

bool NameLookup::done() const { return !request_->asked || ::gai_error(&request_->block) != EAI_INPROGRESS; }

void NameLookup::Wait(Clock::time_point deadline) const {
  while (!done()) {
    const auto left = deadline - Clock::now();
    if (left <= Clock::duration::zero()) return;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec timeout{.tv_sec = static_cast<time_t>(seconds.count()),
                           .tv_nsec = static_cast<long>(std::chrono::nanoseconds(left - seconds).count())};
    const gaicb* list[] = {&request_->block};
    ::gai_suspend(list, 1, &timeout);
  }
}

Result<std::vector<SocketAddress>> NameLookup::Take() const {
  const Request& request = *request_;
  const int error = request.asked ? ::gai_error(&request_->block) : request.error;
  if (error == EAI_INPROGRESS) return Unavailable("lookup of " + request.host + ": no answer yet");
  if (error != 0) return Unavailable("lookup of " + request.host + ": " + ::gai_strerror(error));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* at = request.block.ar_result; at != nullptr; at = at->ai_next) {
    SocketAddress address;
    if (at->ai_addrlen > sizeof address.storage) continue;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.length = at->ai_addrlen;
    addresses.push_back(address);
  }
  if (addresses.empty()) return Unavailable("lookup of " + request.host + ": no address");
  return addresses;
}

}  // namespace lockstep::contract
