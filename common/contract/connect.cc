#include "common/contract/connect.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lockstep::contract {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

Status Refused(int error) { return Unavailable(std::strerror(error)); }

}  // namespace

bool PollUntil(int fd, short events, Deadline deadline) {
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    pollfd poll{.fd = fd, .events = events, .revents = 0};
    const int ready = ::poll(&poll, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (ready > 0) return true;
    if (ready == 0 && Clock::now() >= deadline) return false;
  }
}

Result<UniqueFd> ConnectTo(const SocketAddress& address, Deadline deadline) {
  UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Status::FromErrno(errno, "socket");
  if (::connect(fd.get(), address.get(), address.length) != 0) {
    if (errno != EINPROGRESS) return Refused(errno);
    if (!PollUntil(fd.get(), POLLOUT, deadline)) return Refused(ETIMEDOUT);
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return Refused(error);
  }
  if (IsConnectedToItself(fd.get())) return Refused(ECONNREFUSED);
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

}  // namespace lockstep::contract
