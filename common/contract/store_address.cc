#include "common/contract/store_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>

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

// Shared with the thread that looks the name up, which may outlive who asked.
struct NameLookup::Request {
  std::string host;
  std::string service;
  addrinfo hints{};

  std::mutex mutex;  // guards what follows
  std::condition_variable answered;
  bool done = false;
  int error = 0;
  addrinfo* found = nullptr;

  ~Request() {
    if (found != nullptr) ::freeaddrinfo(found);
  }

  void Ask() {
    addrinfo* result = nullptr;
    const int outcome =
        ::getaddrinfo(host.empty() ? nullptr : host.c_str(), service.c_str(), &hints, &result);
    const std::lock_guard lock(mutex);
    error = outcome;
    found = result;
    done = true;
    answered.notify_all();
  }
};

NameLookup::NameLookup(const HostPort& address) : request_(std::make_shared<Request>()) {
  request_->host = address.host;
  request_->service = std::to_string(address.port);
  request_->hints.ai_family = AF_UNSPEC;
  request_->hints.ai_socktype = SOCK_STREAM;
  request_->hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | (address.host.empty() ? AI_PASSIVE : 0);
  request_->Ask();
  if (request_->error != EAI_NONAME) return;

  request_->hints.ai_flags = AI_NUMERICSERV;
  request_->done = false;
  try {
    // It holds the signal mask of this thread, and lives as long as the resolver's own timeouts.
    std::thread([request = request_] { request->Ask(); }).detach();
  } catch (const std::system_error&) {
    request_->error = EAI_AGAIN;
    request_->done = true;
  }
}

NameLookup::~NameLookup() = default;

bool NameLookup::done() const {
  const std::lock_guard lock(request_->mutex);
  return request_->done;
}

void NameLookup::Wait(Clock::time_point deadline) const {
  std::unique_lock lock(request_->mutex);
  request_->answered.wait_until(lock, deadline, [this] { return request_->done; });
}

Result<std::vector<SocketAddress>> NameLookup::Take() const {
  const std::lock_guard lock(request_->mutex);
  const std::string operation = "lookup of " + request_->host;
  if (!request_->done) return Unavailable(operation + ": no answer yet");
  if (request_->error != 0) return Unavailable(operation + ": " + ::gai_strerror(request_->error));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* at = request_->found; at != nullptr; at = at->ai_next) {
    SocketAddress address;
    if (at->ai_addrlen > sizeof address.storage) continue;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.length = at->ai_addrlen;
    addresses.push_back(address);
  }
  if (addresses.empty()) return Unavailable(operation + ": no address");
  return addresses;
}

}  // namespace lockstep::contract
