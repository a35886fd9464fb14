#pragma once

#include <sys/socket.h>

#include <string>

#include "common/status.h"
#include "common/unique_fd.h"

namespace lockstep::http {

struct ListenSocket {
  UniqueFd fd;          // non-blocking, close-on-exec, listening
  int port = 0;         // the one it got
  std::string address;  // "127.0.0.1:8080", "[::1]:8080"
};

// `address` is numeric, or "localhost" (127.0.0.1); "::" takes IPv4 too. kInvalidArgument when it is neither;
// otherwise the message names address and port.
Result<ListenSocket> Listen(const std::string& address, int port);

// The address without its port, an IPv4 one mapped into IPv6 as IPv4; empty for other families.
std::string HostOf(const sockaddr* address);
bool IsLoopback(const sockaddr* address);

}  // namespace lockstep::http
