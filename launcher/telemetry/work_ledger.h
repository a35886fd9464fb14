#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>

namespace lockstep::telemetry {

// Which of a job's time was worth something. The job's time is
//
//   elapsed = start-up (until the first step begins) + useful + lost,
//
// and a restart loses what lies between the moment when the step that the new generation resumes from was
// first done and the moment when the new generation's first step begins: the repeated steps and the
// standstill. This needs no knowledge of checkpoints, only the step numbers. goodput = useful / elapsed. Not
// thread-safe.
class WorkLedger {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit WorkLedger(TimePoint start) : start_(start) {}

  // Step number `step` (1 is the first), or the last `steps` up to it, took `seconds` and ended now. Returns
  // the seconds that this shows to have been lost: 0, except for the first step of a generation.
  double Step(int64_t step, double seconds, TimePoint now, int64_t steps = 1);
  // The generation ended; until the next step nothing is useful.
  void Stopped(TimePoint now);

  // Empty before the first step.
  std::optional<double> goodput(TimePoint now) const;
  double lost_seconds() const { return lost_; }

 private:
  double UsefulAt(TimePoint time) const;

  TimePoint start_;
  std::optional<TimePoint> first_step_;  // when the first step of all began
  std::optional<TimePoint> stopped_;     // set between generations
  bool generation_has_stepped_ = false;
  double lost_ = 0;
  std::map<int64_t, double>
      useful_by_step_;  // useful seconds when a step was done; thinned, see work_ledger.cc
  int64_t stride_ = 1;
};

}  // namespace lockstep::telemetry
