#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace lockstep::telemetry {

// How fast steps are going: the recent rate and the median time of a step. Time in which no steps are meant
// to be taken (restarts, evaluation, checkpoints: see Pause) does not count. Bounded in memory. Not
// thread-safe.
class ProgressMeter {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A step ended now, or the last of `steps` short ones. `seconds` is their own time as the process measured
  // it (0: unknown), used where the time since the step before says nothing: the first one, and the first
  // after a pause. Returns the seconds of training that it counts for.
  double Step(int64_t samples, double seconds, TimePoint now, int64_t steps = 1);
  // The time until the next step is not training time.
  void Pause() { last_step_.reset(); }
  // A new generation: the window starts anew, the overall mean goes on.
  void Restart();

  // Over the last two seconds of training or the last ten steps, whichever is longer. Empty before the first
  // step.
  std::optional<double> samples_per_second() const;
  std::optional<double> seconds_per_step() const;
  // Over everything.
  std::optional<double> mean_samples_per_second() const;
  // Of the last 64 steps; 0 before the first.
  double median_step_seconds() const;

 private:
  struct Mark {
    double seconds = 0;  // training time so far
    int64_t samples = 0;
    int64_t steps = 0;
  };

  Mark total_;
  std::deque<Mark> marks_;  // the front is where the window begins
  std::optional<TimePoint> last_step_;
  std::vector<double> recent_;  // a ring
  size_t next_recent_ = 0;
};

}  // namespace lockstep::telemetry
