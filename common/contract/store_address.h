#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

// HOST:PORT as people write it, and what the kernel wants instead.
namespace lockstep::contract {

struct HostPort {
  std::string
      host;  // a name, an IPv4 or an IPv6 address, without brackets; empty: all addresses (to listen on)
  uint16_t port = 0;
};

// Reads "HOST:PORT", "[V6]:PORT" and ":PORT". kInvalidArgument says what would be right.
Result<HostPort> ParseHostPort(std::string_view text);

// The reverse: brackets around what has a colon in it.
std::string FormatHostPort(std::string_view host, uint16_t port);

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }

  std::string host()
      const;  // numeric, empty if there is none; an IPv4 address that came in over IPv6 is written as IPv4
  uint16_t port() const;
};

// Of a socket; on failure its length is 0.
SocketAddress LocalAddress(int socket);
SocketAddress PeerAddress(int socket);

// A connection to a free local port can meet itself (both ends happen to pick the same port): nobody listens
// there.
bool IsConnectedToItself(int socket);

// One name lookup that doesn't block its caller: a thread of its own asks the resolver. Numeric
// addresses are there at once. Destroying it early is fine and does not wait.
class NameLookup {
 public:
  using Clock = std::chrono::steady_clock;

  explicit NameLookup(const HostPort& address);
  ~NameLookup();
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

  // Whether Take() has its answer.
  bool done() const;

  // Blocks until done() or the deadline.
  void Wait(Clock::time_point deadline) const;

  // At least one address. kUnavailable if the name is not known (yet) or the lookup is not done.
  Result<std::vector<SocketAddress>> Take() const;

 private:
  struct Request;
  std::shared_ptr<Request> request_;
};

}  // namespace lockstep::contract
