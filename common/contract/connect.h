#pragma once

#include <chrono>

#include "common/contract/store_address.h"
#include "common/status.h"
#include "common/unique_fd.h"

// Sockets whose every wait ends at a deadline.
namespace lockstep::contract {

using Deadline = std::chrono::steady_clock::time_point;

// Waits for `events` (POLLIN, POLLOUT); false: the deadline has passed.
bool PollUntil(int fd, short events, Deadline deadline);

// A connection, non-blocking and without Nagle's delay. kUnavailable with the reason alone: nobody is there.
Result<UniqueFd> ConnectTo(const SocketAddress& address, Deadline deadline);

}  // namespace lockstep::contract
