#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>

#include "common/contract/event.h"

namespace lockstep::telemetry {

// Who holds up whom. Ranks in lockstep take equally many steps in the same time, and whoever is done with its
// own part of a step waits in the communication for the slowest. So, of one step,
//
//   own part       = seconds − collective_seconds, of a rank,
//   exposed        = the least collective_seconds of all ranks: communication that nothing hid,
//   straggling     = the mean of collective_seconds − exposed: what ranks waited for others, not for the
//   wire.
//
// Looked at in windows of about a second, of the ranks of one launcher. What straggled in one is told with
// the next. Not thread-safe.
class RankBalance {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // In seconds of the job, which are those of any of its ranks.
  struct Window {
    double exposed = 0;
    double straggling = 0;
    double data_wait = 0;  // the mean of the ranks'
  };

  // `in_lockstep`: false where ranks do not wait for one another; then nothing is straggling, and exposed is
  // the mean.
  explicit RankBalance(bool in_lockstep) : in_lockstep_(in_lockstep) {}

  // A rank's step, or several. Returns the window that it ends.
  std::optional<Window> Step(int rank, const contract::StepEvent& event, TimePoint now);
  // One rank did something else than steps for so long, such as to bring a checkpoint's state away, and the
  // others waited for it. That has a reason of its own and is not straggling too, if it is told within a
  // window's time.
  void Blocked(double seconds);
  // The generation ended: what was left of its last window, if every rank had told of it.
  std::optional<Window> End();

  // By how much a rank's own part of a step was longer than that of the median rank (of two, the faster), at
  // least 0; mean seconds a step of the last whole window. Empty before that, and of a single rank.
  const std::map<int, double>& delays() const { return delays_; }
  // The greatest of them, when it is more than 5 % of the median rank's own part.
  struct Straggler {
    int rank = 0;
    double delay = 0;
  };
  std::optional<Straggler> straggler() const;

 private:
  struct Sums {
    int64_t steps = 0;
    double own = 0;
    double collective = 0;
    double data_wait = 0;
  };

  bool Whole(TimePoint now) const;
  bool AllTold() const;
  double LessExplained(double straggling);
  Window Close();

  const bool in_lockstep_;
  std::optional<TimePoint> began_;
  std::map<int, Sums> sums_;  // of this window, by rank of this generation
  std::map<int, double> delays_;
  double median_ = 0;
  double straggled_ = 0;       // in the last window
  double blocked_ = 0;         // told in this window, of which the others waited
  double blocked_before_ = 0;  // what is left of the last window's
};

}  // namespace lockstep::telemetry
