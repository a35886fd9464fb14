#include "launcher/telemetry/work_ledger.h"

#include <algorithm>
#include <iterator>

namespace lockstep::telemetry {

namespace {

constexpr size_t kMaxEntries = 512;

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Between two entries as if the steps between them had taken equally long.
double Interpolate(const std::map<int64_t, double>& by_step, int64_t step) {
  const auto above = by_step.lower_bound(step);
  if (above == by_step.end()) return by_step.rbegin()->second;
  if (above->first == step || above == by_step.begin()) return above->second;
  const auto below = std::prev(above);
  const double share =
      static_cast<double>(step - below->first) / static_cast<double>(above->first - below->first);
  return below->second + share * (above->second - below->second);
}

}  // namespace

double WorkLedger::UsefulAt(TimePoint time) const { return Seconds(time - *first_step_) - lost_; }

double WorkLedger::Step(int64_t step, double seconds, TimePoint now, int64_t steps) {
  const int64_t before = step - steps;
  const TimePoint earliest = stopped_.value_or(start_);
  const TimePoint began =
      std::max(earliest,
               now - std::chrono::duration_cast<TimePoint::duration>(std::chrono::duration<double>(seconds)));
  double newly_lost = 0;
  if (!first_step_) {
    first_step_ = began;
    useful_by_step_[before] = 0;
  } else if (!generation_has_stepped_) {
    const double useful = Interpolate(useful_by_step_, before);
    newly_lost = std::max(0.0, UsefulAt(began) - useful);
    lost_ += newly_lost;
    useful_by_step_.erase(useful_by_step_.upper_bound(before), useful_by_step_.end());
    useful_by_step_[before] = useful;
  }
  generation_has_stepped_ = true;
  stopped_.reset();

  // A long job keeps every 2nd, 4th … step, and its first and newest.
  if (useful_by_step_.rbegin()->first % stride_ != 0 && useful_by_step_.size() > 1) {
    useful_by_step_.erase(std::prev(useful_by_step_.end()));
  }
  if (useful_by_step_.empty() || step > useful_by_step_.rbegin()->first)
    useful_by_step_[step] = UsefulAt(now);
  if (useful_by_step_.size() > kMaxEntries) {
    stride_ *= 2;
    for (auto it = std::next(useful_by_step_.begin()); it != std::prev(useful_by_step_.end());) {
      it = it->first % stride_ == 0 ? std::next(it) : useful_by_step_.erase(it);
    }
  }
  return newly_lost;
}

void WorkLedger::Stopped(TimePoint now) {
  if (!stopped_) stopped_ = now;
  generation_has_stepped_ = false;
}

std::optional<double> WorkLedger::goodput(TimePoint now) const {
  if (!first_step_ || now <= start_) return std::nullopt;
  return std::clamp(UsefulAt(stopped_.value_or(now)) / Seconds(now - start_), 0.0, 1.0);
}

}  // namespace lockstep::telemetry
