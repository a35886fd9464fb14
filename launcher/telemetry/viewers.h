#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::telemetry {

// Whether somebody looks at the job's page. A launcher whose job is over stays for one more look of theirs,
// or the page would never show how it ended. Thread-safe.
class Viewers {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  void Looked(TimePoint now) { last_.store(now.time_since_epoch().count(), std::memory_order_relaxed); }
  bool any(TimePoint now) const {
    const int64_t last = last_.load(std::memory_order_relaxed);
    return last != 0 && now - TimePoint(TimePoint::duration(last)) < kAway;
  }

  // The page looks every half second.
  static constexpr std::chrono::milliseconds kLastLook{750};

 private:
  static constexpr std::chrono::seconds kAway{2};

  std::atomic<int64_t> last_{0};  // 0: never
};

}  // namespace lockstep::telemetry
