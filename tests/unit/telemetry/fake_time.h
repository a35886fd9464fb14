#pragma once

#include <chrono>

namespace lockstep::telemetry {

// Seconds after an arbitrary beginning, on the steady clock's scale.
inline std::chrono::steady_clock::time_point At(double seconds) {
  using Clock = std::chrono::steady_clock;
  return Clock::time_point(std::chrono::hours(1)) +
         std::chrono::round<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace lockstep::telemetry
