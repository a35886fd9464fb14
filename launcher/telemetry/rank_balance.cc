#include "launcher/telemetry/rank_balance.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep::telemetry {

namespace {

constexpr std::chrono::seconds kWindow{1};
// A rank that reports no more (a program need not) is waited for no longer than this.
constexpr std::chrono::seconds kLongestWindow{60};
constexpr double kNoticeable = 0.05;

}  // namespace

std::optional<RankBalance::Window> RankBalance::Step(int rank, const contract::StepEvent& event,
                                                     TimePoint now) {
  if (!began_) began_ = now;
  // A program may claim anything.
  const double seconds = std::max(0.0, event.seconds);
  const double collective = std::clamp(event.collective_seconds, 0.0, seconds);
  Sums& sums = sums_[rank];
  sums.steps += event.steps;
  sums.own += seconds - collective;
  sums.collective += collective;
  sums.data_wait += std::clamp(event.data_wait_seconds, 0.0, seconds - collective);
  if (!Whole(now)) return std::nullopt;
  began_ = now;
  return Close();
}

void RankBalance::Blocked(double seconds) {
  const auto ranks = static_cast<double>(sums_.size());
  // On average: it did not wait for itself.
  if (ranks > 1) blocked_ += std::max(0.0, seconds) * (ranks - 1) / ranks;
}

std::optional<RankBalance::Window> RankBalance::End() {
  std::optional<Window> rest;
  if (!sums_.empty() && AllTold()) rest = Close();
  if (straggled_ > 0) {
    if (!rest) rest.emplace();
    rest->straggling += LessExplained(std::exchange(straggled_, 0));
  }
  blocked_ = blocked_before_ = 0;
  began_.reset();
  sums_.clear();
  delays_.clear();
  return rest;
}

bool RankBalance::Whole(TimePoint now) const {
  if (now - *began_ < kWindow) return false;
  return now - *began_ >= kLongestWindow || AllTold();
}

bool RankBalance::AllTold() const {
  return std::all_of(sums_.begin(), sums_.end(), [](const auto& sums) { return sums.second.steps > 0; });
}

// Of what straggled in the last window, what nothing explains that was told in it or since.
double RankBalance::LessExplained(double straggling) {
  const double by_last = std::min(straggling, blocked_before_);
  const double by_this = std::min(straggling - by_last, blocked_);
  blocked_before_ = std::exchange(blocked_, 0) - by_this;
  return straggling - by_last - by_this;
}

// Lines of ranks do not come at the same moment: what is compared is a step's mean.
RankBalance::Window RankBalance::Close() {
  Window window;
  delays_.clear();
  std::vector<double> own;
  double ranks = 0, steps = 0, collective = 0, least = 0;
  for (const auto& [rank, sums] : sums_) {
    if (sums.steps == 0) continue;
    const auto count = static_cast<double>(sums.steps);
    least = ranks == 0 ? sums.collective / count : std::min(least, sums.collective / count);
    ranks += 1;
    steps += count;
    collective += sums.collective;
    window.data_wait += sums.data_wait;
    own.push_back(sums.own / count);
  }
  window.data_wait /= ranks;
  window.exposed = in_lockstep_ ? least * steps / ranks : collective / ranks;
  const double straggled = std::max(0.0, collective / ranks - window.exposed);
  window.straggling = LessExplained(std::exchange(straggled_, straggled));

  const auto middle = own.begin() + static_cast<std::ptrdiff_t>((own.size() - 1) / 2);
  std::nth_element(own.begin(), middle, own.end());
  median_ = *middle;
  for (auto& [rank, sums] : sums_) {
    if (sums.steps > 0 && ranks > 1 && in_lockstep_) {
      delays_[rank] = std::max(0.0, sums.own / static_cast<double>(sums.steps) - median_);
    }
    sums = {};
  }
  return window;
}

std::optional<RankBalance::Straggler> RankBalance::straggler() const {
  const auto slowest = std::max_element(delays_.begin(), delays_.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  if (slowest == delays_.end() || slowest->second <= kNoticeable * median_) return std::nullopt;
  return Straggler{.rank = slowest->first, .delay = slowest->second};
}

}  // namespace lockstep::telemetry
