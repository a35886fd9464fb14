#include "launcher/kube/rate_limit.h"

#include <algorithm>

namespace lockstep::kube {

RateLimit::RateLimit(double per_second, int burst, Clock::time_point now)
    : per_second_(per_second), burst_(std::max(burst, 1)), tokens_(burst_), counted_at_(now) {}

std::optional<RateLimit::Clock::time_point> RateLimit::Reserve(Clock::time_point now,
                                                               Clock::time_point deadline) {
  if (per_second_ <= 0) return now;
  const std::lock_guard lock(mutex_);
  if (now > counted_at_) {
    const double passed = std::chrono::duration<double>(now - counted_at_).count();
    tokens_ = std::min(burst_, tokens_ + passed * per_second_);
    counted_at_ = now;
  }
  const double missing = std::max(0.0, 1 - tokens_);
  const auto wait =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(missing / per_second_));
  if (now + wait > deadline) return std::nullopt;
  tokens_ -= 1;
  return now + wait;
}

}  // namespace lockstep::kube
