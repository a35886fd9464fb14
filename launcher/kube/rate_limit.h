#pragma once

#include <chrono>
#include <mutex>
#include <optional>

namespace lockstep::kube {

// A token bucket. Pure but for its lock: callers say what time it is and wait themselves. Safe from every
// thread.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  // `per_second` 0: no limit.
  RateLimit(double per_second, int burst, Clock::time_point now);

  // When the caller's turn is: `now`, or later. Empty when that is after `deadline`; then no turn is taken.
  std::optional<Clock::time_point> Reserve(Clock::time_point now, Clock::time_point deadline);

 private:
  const double per_second_;
  const double burst_;
  std::mutex mutex_;
  double tokens_;  // below zero: turns already given away
  Clock::time_point counted_at_;
};

}  // namespace lockstep::kube
