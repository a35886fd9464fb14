#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

namespace lockstep::telemetry {

// What a job's time went into where it did not go into its training: the values of the label `reason`, a
// closed set.
enum class Loss {
  kWaitingForResources,  // until all replicas are there: at first, or after one was lost
  kStart,                // from then until the first step begins
  kRestart,              // the standstill between two generations, and steps that had to be done again
  kCheckpoint,           // the training stood still for one
  kEvaluation,
  kDataWait,   // steps waited for their samples
  kStraggler,  // ranks waited for the slowest one
};
inline constexpr std::array<std::string_view, 7> kLossNames = {
    "WaitingForResources", "Start", "Restart", "Checkpoint", "Evaluation", "DataWait", "Straggler"};

// productive + the losses = the time since the launcher's start. In seconds; what nobody gave a reason for
// counts as productive.
struct JobTime {
  double productive = 0;
  std::array<double, kLossNames.size()> lost = {};  // by Loss

  double lost_to(Loss loss) const { return lost[static_cast<size_t>(loss)]; }
};

// Which of a job's time was worth something. A restart loses what lies between the moment when the step that
// the new generation resumes from was first done and the moment when the new generation's first step begins:
// the repeated steps and the standstill. This needs no knowledge of checkpoints, only the step numbers. Not
// thread-safe.
class WorkLedger {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit WorkLedger(TimePoint start) : start_(start), idle_since_(start), told_until_(start) {}

  // A generation's processes are started: all that it needs is there.
  void Started(TimePoint now);
  // Step number `step` (1 is the first), or the last `steps` up to it, took `seconds` and ended now.
  void Step(int64_t step, double seconds, TimePoint now, int64_t steps = 1);
  // So much of the time in which steps are taken was not productive; no more than there is of it.
  void Lose(Loss loss, double seconds, TimePoint now);
  // The generation ended. `until_started`: what the job then waits for.
  void Stopped(TimePoint now, Loss until_started = Loss::kRestart);

  JobTime time(TimePoint now) const;
  // The same for counters: the part of a generation's first step before `now` stays lost.
  JobTime Tell(TimePoint now);
  // productive / elapsed. Empty before the first step.
  std::optional<double> goodput(TimePoint now) const;

 private:
  double& lost_to(Loss loss) { return lost_[static_cast<size_t>(loss)]; }
  double ProductiveAt(TimePoint time) const;
  void Settle(TimePoint now);

  TimePoint start_;
  std::optional<TimePoint> idle_since_;  // set while no steps are taken
  Loss idle_ = Loss::kWaitingForResources;
  TimePoint told_until_;
  std::array<double, kLossNames.size()> lost_ = {};
  // Productive seconds when a step was done; empty before the first. Thinned, see work_ledger.cc.
  std::map<int64_t, double> productive_by_step_;
  int64_t stride_ = 1;
};

}  // namespace lockstep::telemetry
