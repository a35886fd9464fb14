#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep::process {

inline constexpr size_t kMostThreadsTold = 64;

// What /proc says of the threads of a process, the first first, a line each, as far as we may read it:
// "thread 4711 (python3): sleeps, in futex_wait_queue, system call 202". Empty where it is gone.
std::vector<std::string> ThreadStates(pid_t pid);

}  // namespace lockstep::process
