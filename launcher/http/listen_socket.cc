#include "launcher/http/listen_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <memory>

namespace lockstep::http {

namespace {

std::string Join(const std::string& host, int port) {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

int PortOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

bool IsMapped(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_V4MAPPED(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

}  // namespace

Result<ListenSocket> Listen(const std::string& address, int port) {
  const std::string host = address == "localhost" ? "127.0.0.1" : address;
  if (port < 0 || port > 65535)
    return InvalidArgument("listen: port " + std::to_string(port) + " is not 0 to 65535");

  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (host.empty() || ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return InvalidArgument("listen: \"" + address + "\" is not an IP address");
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);

  const std::string operation = "listen on " + Join(host, port);
  ListenSocket result;
  result.fd.reset(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!result.fd) return Status::FromErrno(errno, operation);
  const int on = 1;
  const int off = 0;
  ::setsockopt(result.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (found->ai_family == AF_INET6)
    ::setsockopt(result.fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(result.fd.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(result.fd.get(), 128) != 0) {
    return Status::FromErrno(errno, operation);
  }
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (::getsockname(result.fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return Status::FromErrno(errno, operation);
  }
  result.port = PortOf(bound);
  result.address = Join(host, result.port);
  return result;
}

std::string HostOf(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    const bool mapped = IsMapped(address);
    ::inet_ntop(mapped ? AF_INET : AF_INET6, mapped ? v6.s6_addr + 12 : v6.s6_addr, text, sizeof text);
  }
  return text;
}

bool IsLoopback(const sockaddr* address) {
  const std::string host = HostOf(address);
  return host == "::1" || host.starts_with("127.");
}

}  // namespace lockstep::http
