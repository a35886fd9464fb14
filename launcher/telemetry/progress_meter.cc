#include "launcher/telemetry/progress_meter.h"

#include <algorithm>

namespace lockstep::telemetry {

namespace {

constexpr double kWindowSeconds = 2;
constexpr int64_t kWindowSteps = 10;
constexpr double kMarkSeconds = 0.02;  // marks are no closer than this, so the window holds about a hundred
constexpr size_t kRecentSteps = 64;

}  // namespace

double ProgressMeter::Step(int64_t samples, double seconds, TimePoint now, int64_t steps) {
  const double gap = last_step_ ? std::chrono::duration<double>(now - *last_step_).count() : seconds;
  last_step_ = now;
  if (gap <= 0) return 0;  // of unknown length: it only starts the clock

  if (marks_.empty()) marks_.push_back(total_);
  total_.seconds += gap;
  total_.samples += samples;
  total_.steps += steps;
  if (total_.seconds - marks_.back().seconds >= kMarkSeconds) marks_.push_back(total_);
  while (marks_.size() > 1 && total_.seconds - marks_[1].seconds >= kWindowSeconds &&
         total_.steps - marks_[1].steps >= kWindowSteps) {
    marks_.pop_front();
  }

  const double each = gap / static_cast<double>(steps);
  if (recent_.size() < kRecentSteps) {
    recent_.push_back(each);
  } else {
    recent_[next_recent_] = each;
    next_recent_ = (next_recent_ + 1) % kRecentSteps;
  }
  return gap;
}

void ProgressMeter::Restart() {
  Pause();
  marks_.clear();
}

std::optional<double> ProgressMeter::samples_per_second() const {
  if (marks_.empty()) return std::nullopt;
  return static_cast<double>(total_.samples - marks_.front().samples) /
         (total_.seconds - marks_.front().seconds);
}

std::optional<double> ProgressMeter::seconds_per_step() const {
  if (marks_.empty()) return std::nullopt;
  return (total_.seconds - marks_.front().seconds) / static_cast<double>(total_.steps - marks_.front().steps);
}

std::optional<double> ProgressMeter::mean_samples_per_second() const {
  if (total_.steps == 0) return std::nullopt;
  return static_cast<double>(total_.samples) / total_.seconds;
}

double ProgressMeter::median_step_seconds() const {
  if (recent_.empty()) return 0;
  std::vector<double> sorted = recent_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

}  // namespace lockstep::telemetry
