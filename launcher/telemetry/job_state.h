#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/event.h"
#include "launcher/telemetry/curve.h"
#include "launcher/telemetry/device_snapshot.h"
#include "launcher/telemetry/generation_log.h"
#include "launcher/telemetry/hang_detector.h"
#include "launcher/telemetry/job_metrics.h"
#include "launcher/telemetry/progress_meter.h"
#include "launcher/telemetry/rank_balance.h"
#include "launcher/telemetry/rank_phase.h"
#include "launcher/telemetry/run_record.h"
#include "launcher/telemetry/work_ledger.h"

// Telemetry: what a running job tells the world. Event lines come in, JobState makes one
// consistent picture of them, counts into JobMetrics, keeps them in RunRecord, and the rest reads that
// picture: /status, /metrics, /healthz, /readyz and the page (endpoints.h), the progress line
// (progress_line.h), the hang rule (hang_detector.h). Nothing here starts, stops or waits for anything; the
// launcher's loop feeds it and asks it.
namespace lockstep::telemetry {

enum class JobPhase { kPending, kRunning, kRestarting, kSucceeded, kFailed };
std::string_view JobPhaseName(JobPhase phase);  // "Pending" …

enum class RankState { kPending, kRunning, kExited };
std::string_view RankStateName(RankState state);

// What does not change while the launcher lives.
struct JobDescription {
  std::string name;
  std::string namespace_name = "default";
  std::string strategy;   // "Mirrored" …: goes into lockstep_job_info
  std::string framework;  // "Lockstep", "PyTorch" …: likewise
  int attempt = 0;
  int world_size = 1;
  int replicas = 1;           // that the job asks for
  bool reports_steps = true;  // false for a program: it may never send an event
};

struct Failure {
  int rank = -1;
  std::string role;    // empty: of no rank
  int role_rank = -1;  // among the processes of its role; -1: the job has but one
  int replica = 0;
  int process = 0;                           // index within the replica
  std::optional<int> exit_code;              // as a shell gives it: 128 + n for signal n
  std::string reason;                        // "OOMKilled", "Signal", "ExitCode", "Hang" …
  std::string message;                       // one sentence for a person
  std::vector<std::string> last_lines = {};  // of the rank's output; as many as there are, at most 20
  std::chrono::system_clock::time_point time{};
};

struct RankSnapshot {
  RankIdentity identity;
  RankState state = RankState::kPending;
  int pid = 0;       // 0: none
  int restarts = 0;  // how often this launcher started a process anew for it
  RankPhase phase = RankPhase::kStarting;
  std::string layers = {};              // that it has of a model that is cut, in its words; else empty
  int64_t step = 0;                     // last one reported, in any generation
  double step_seconds = 0;              // of that step
  double collective_seconds = 0;        // of it, in communication or waiting for it
  std::optional<int64_t> memory_bytes;  // of kind "used"
  std::optional<int64_t> memory_held;   // of kind "held": what its pool has taken of the device
  std::optional<int64_t> memory_peak;   // of kind "peak"
  std::optional<int> exit_code;         // as in Failure
  std::optional<double> delay;          // RankBalance::delays
};

struct Progress {
  int64_t step = 0;
  int64_t total_steps = 0;  // 0: not known
  int64_t epoch = 0;        // from 0
  std::optional<int> percentage;
  std::optional<double> remaining_seconds;
  std::optional<double> samples_per_second;  // over the last two seconds or ten steps, whichever is longer
  std::optional<double> loss;
  std::optional<double> loss_average;
  std::optional<double> accuracy;  // of the last evaluation that measured it
  std::string accuracy_split;      // "validation" | "test"
  double learning_rate = 0;
  std::chrono::system_clock::time_point last_updated{};
};

struct JobSnapshot {
  JobDescription description;
  JobPhase phase = JobPhase::kPending;
  int generation = 0;
  int restarts = 0;
  std::chrono::system_clock::time_point start_time{};
  std::optional<std::chrono::system_clock::time_point> completion_time;
  double elapsed_seconds = 0;                     // since start_time, until now or the completion
  std::vector<RankSnapshot> ranks;                // of this launcher, by rank
  std::vector<DeviceSnapshot> devices;            // GPUs of this launcher, by index
  std::optional<Progress> progress;               // empty before the first step or resumption
  std::optional<double> mean_samples_per_second;  // over all steps, their own time only
  std::optional<Failure> last_failure;
  JobTime time;                   // WorkLedger
  std::optional<double> goodput;  // likewise; empty before the first step
  std::optional<RankBalance::Straggler> straggler;
  std::vector<GenerationRecord> generations;
  int64_t generations_forgotten = 0;
  int64_t malformed_events = 0;
  std::vector<int> left_out;  // replicas that this generation goes on without
  bool resizing = false;      // it restarts, though nothing failed
  bool ready = false;
  std::string ready_reason;  // why not
};

// Thread-safe: the launcher's loop writes, the HTTP thread reads. Every `now` is the steady clock's, not
// decreasing. A rank that neither WorldChanged nor RankStarted
// announced is ignored.
//
// The job's steps, samples and loss are those of its leader, the lowest rank of this launcher that has
// reported a step in this generation. Counters of the whole job (lockstep_steps_total …) are fed by one rank
// alone, the first worker or chief, so that the sum over several launchers is right; a role that does not
// take steps (RankIdentity::steps) is no part of either, but an evaluator's evaluations are the job's.
class JobState {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // Both outlive this; `record` may be null.
  JobState(JobDescription description, JobMetrics& metrics, TimePoint now, RunRecord* record = nullptr);

  // The ranks of this launcher are about to start: at first (0) and after each Restarting.
  void GenerationStarted(int generation, TimePoint now);
  void RankStarted(const RankIdentity& identity, int pid, TimePoint now);
  void ApplyEvent(int rank, const contract::Event& event, TimePoint now);
  // Anything on standard output or error: a program that reports no steps is alive.
  void Wrote(int rank, TimePoint now);
  void MalformedEvent(int rank);
  // `exit_code` as a shell gives it.
  void RankExited(int rank, int exit_code, TimePoint now);

  // What the driver says of a GPU that the job uses.
  void DeviceRead(DeviceSnapshot device);
  // From the next generation on: how many ranks there are over all launchers, those of this one, and the one
  // whose steps count for the job. Ranks that are no more are forgotten, new ones are there at once, pending:
  // whoever reads sees all or none of them.
  void WorldChanged(int world_size, std::span<const RankIdentity> ranks, int speaker = 0);
  // The replicas that the coming generation goes on without.
  void ReplicasLeftOut(std::vector<int> replicas);

  // A generation is over and another one will come. Not called when the job ends.
  void Restarting(RestartReason reason, Failure failure, TimePoint now);
  // One rank, or one replica's, is started again while the others go on.
  void RestartingAlone(RestartReason reason, Failure failure, TimePoint now);
  // As Restarting(), in order to go on with other replicas: nothing failed, and it counts in the metric only.
  void Resizing(TimePoint now);
  // A rank failed somewhere, and the generation ends for it; where replica 0, on another machine, decides
  // what becomes of the job. (There it is Restarting that says so.)
  void FailedElsewhere(const std::string& message, TimePoint now);
  // `failure` when it did not succeed.
  void Finished(bool succeeded, std::optional<Failure> failure, TimePoint now);

  // The loop is alive: call at least every kTickInterval. Lock-free.
  void Tick(TimePoint now) { last_tick_.store(now.time_since_epoch().count(), std::memory_order_relaxed); }
  // The time since the last Tick (or the start).
  std::chrono::steady_clock::duration LoopSilence(TimePoint now) const;

  JobSnapshot Snapshot(TimePoint now) const;
  // For JobMetrics::Render: its counters never go down.
  JobFigures Figures(TimePoint now);
  // Loss and throughput over the run.
  std::vector<CurvePoint> curve() const;
  // What AssessHang needs.
  std::vector<RankProgress> rank_progress() const;
  double median_step_seconds() const;
  // As it was told last, without what Snapshot works out of it; empty before the first step.
  std::optional<Progress> progress() const;

 private:
  struct Rank {
    RankSnapshot snapshot;
    int last_pid = 0;  // 0: never started
    TimePoint started{};
    TimePoint last_progress{};
    std::optional<TimePoint> last_output;
    bool stepped = false;  // in this generation
    bool ready = false;    // likewise
    std::vector<contract::LayerEvent> layers;
  };

  // An evaluator of its own, or the rank that counts for the job.
  bool EvaluatesForJob(const Rank& rank) const;
  void ApplyEvaluation(const Rank& rank, const contract::EvaluationEvent& event, bool is_leader,
                       TimePoint now);
  void ApplyStep(Rank& rank, const contract::StepEvent& event, TimePoint now);
  // Once all ranks that train have said what they have.
  void RecordGraph(TimePoint now);
  std::chrono::system_clock::time_point ToWall(TimePoint time) const;
  double SecondsAt(TimePoint time) const { return std::chrono::duration<double>(time - started_).count(); }
  void ApplyWindow(const std::optional<RankBalance::Window>& window, TimePoint now);
  void StopGeneration(Loss until_started, TimePoint now);
  std::string WhyNotReady(TimePoint now) const;

  JobMetrics& metrics_;
  RunRecord* const record_;
  const TimePoint started_;
  const std::chrono::system_clock::time_point started_wall_;
  std::atomic<int64_t> last_tick_;

  mutable std::mutex mutex_;  // guards all below
  JobDescription description_;
  std::map<int, DeviceSnapshot> devices_;
  JobPhase phase_ = JobPhase::kPending;
  int generation_ = 0;
  int restarts_ = 0;
  std::map<int, Rank> ranks_;
  int leader_ = -1;
  int speaker_ = 0;
  std::optional<Progress> progress_;
  ProgressMeter meter_;
  RankBalance balance_;
  WorkLedger ledger_;
  Curve curve_;
  GenerationLog generations_;
  RestartReason restart_reason_ = RestartReason::kOther;
  std::vector<int> left_out_;
  std::optional<Failure> last_failure_;
  std::optional<TimePoint> completed_;
  int64_t malformed_events_ = 0;
};

// The loop's ticks, and when their absence makes /healthz fail.
inline constexpr std::chrono::seconds kTickInterval{2};
inline constexpr std::chrono::seconds kLoopSilenceLimit{5};
// A program that never reports a step is ready once all its processes have run this long.
inline constexpr std::chrono::seconds kReadyWithoutSteps{5};

}  // namespace lockstep::telemetry
