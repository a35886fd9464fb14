#include "launcher/telemetry/work_ledger.h"

#include <algorithm>
#include <iterator>
#include <numeric>

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

double WorkLedger::ProductiveAt(TimePoint time) const {
  const double lost = std::accumulate(lost_.begin(), lost_.end(), 0.0);
  return Seconds((idle_since_ ? std::min(time, *idle_since_) : time) - start_) - lost;
}

// What has been waited for until now is counted, and the waiting goes on.
void WorkLedger::Settle(TimePoint now) {
  lost_to(idle_) += Seconds(now - *idle_since_);
  idle_since_ = now;
}

void WorkLedger::Started(TimePoint now) {
  if (!idle_since_) return;
  Settle(now);
  idle_ = productive_by_step_.empty() ? Loss::kStart : Loss::kRestart;
}

void WorkLedger::Step(int64_t step, double seconds, TimePoint now, int64_t steps) {
  const int64_t before = step - steps;
  if (idle_since_) {
    const double most = std::max(0.0, Seconds(now - std::max(*idle_since_, told_until_)));
    const double first_step = std::clamp(seconds, 0.0, most);
    lost_to(idle_) += Seconds(now - *idle_since_) - first_step;
    idle_since_.reset();
    if (productive_by_step_.empty()) {
      productive_by_step_[before] = 0;
    } else {
      const double productive = Interpolate(productive_by_step_, before);
      lost_to(Loss::kRestart) += std::max(0.0, ProductiveAt(now) - first_step - productive);
      productive_by_step_.erase(productive_by_step_.upper_bound(before), productive_by_step_.end());
      productive_by_step_[before] = productive;
    }
  }

  // A long job keeps every 2nd, 4th … step, and its first and newest.
  if (productive_by_step_.rbegin()->first % stride_ != 0 && productive_by_step_.size() > 1) {
    productive_by_step_.erase(std::prev(productive_by_step_.end()));
  }
  if (step > productive_by_step_.rbegin()->first) productive_by_step_[step] = ProductiveAt(now);
  if (productive_by_step_.size() > kMaxEntries) {
    stride_ *= 2;
    for (auto it = std::next(productive_by_step_.begin()); it != std::prev(productive_by_step_.end());) {
      it = it->first % stride_ == 0 ? std::next(it) : productive_by_step_.erase(it);
    }
  }
}

void WorkLedger::Lose(Loss loss, double seconds, TimePoint now) {
  lost_to(loss) += std::clamp(seconds, 0.0, std::max(0.0, ProductiveAt(now)));
}

void WorkLedger::Stopped(TimePoint now, Loss until_started) {
  if (idle_since_) Settle(now);
  idle_since_ = now;
  idle_ = until_started;
}

JobTime WorkLedger::Tell(TimePoint now) {
  told_until_ = std::max(told_until_, now);
  return time(now);
}

JobTime WorkLedger::time(TimePoint now) const {
  JobTime time{.productive = std::max(0.0, ProductiveAt(now)), .lost = lost_};
  if (idle_since_) time.lost[static_cast<size_t>(idle_)] += Seconds(now - *idle_since_);
  return time;
}

std::optional<double> WorkLedger::goodput(TimePoint now) const {
  if (productive_by_step_.empty() || now <= start_) return std::nullopt;
  return std::clamp(ProductiveAt(now) / Seconds(now - start_), 0.0, 1.0);
}

}  // namespace lockstep::telemetry
