#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

// The kernel's wait queue on a word of memory that several processes map.
namespace lockstep::trainer::collectives {

// Sleeps until a FutexWake, or `timeout`, or at once if the word is not `expected`; may also return for no
// reason.
inline void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, std::chrono::nanoseconds timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec relative{.tv_sec = seconds.count(), .tv_nsec = (timeout - seconds).count()};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &relative, nullptr, 0);
}

inline void FutexWake(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace lockstep::trainer::collectives
