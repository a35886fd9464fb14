#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/event.h"
#include "launcher/telemetry/device_snapshot.h"
#include "launcher/telemetry/rank_phase.h"
#include "launcher/telemetry/work_ledger.h"

namespace lockstep::telemetry {

// The values of the label `reason`: a closed set.
enum class RestartReason {
  kExitCode,
  kSignal,
  kOutOfMemory,
  kHang,
  kReplicaLost,
  kDeviceFailed,
  kResized,
  kOther
};
std::string_view RestartReasonName(RestartReason reason);  // "ExitCode", "Signal", "OOMKilled", "Hang", …

// What the info series say.
struct JobLabels {
  std::string name;
  std::string namespace_name;
  std::string strategy;
  std::string framework;
};

// What is worked out when it is asked for.
struct JobFigures {
  struct Delay {
    RankIdentity rank;
    double seconds = 0;
  };
  // WorkLedger; empty in launchers without rank 0, and goodput before the first step.
  std::optional<double> goodput = {};
  std::optional<JobTime> time = {};
  std::vector<Delay> delays = {};  // RankBalance
};

enum class MetricsFormat { kPrometheusText, kOpenMetrics };

// By the Accept header (RFC 9110 12.5.1, q-values included): OpenMetrics 1.0.0 when it is asked for at least
// as eagerly as text; otherwise, and for whatever else is asked, text 0.0.4.
MetricsFormat NegotiateMetricsFormat(std::string_view accept);
// The exact content type; Prometheus 3 refuses others.
std::string_view MetricsContentType(MetricsFormat format);

// The registry: every metric that a launcher can know. Updates come from one
// thread (JobState makes them); Render may run on another at any time. Series of a rank carry role, replica
// and process, so their number is bounded by the job's size; nothing that a program writes becomes a label.
class JobMetrics {
 public:
  explicit JobMetrics(const JobLabels& labels);
  ~JobMetrics();
  JobMetrics(const JobMetrics&) = delete;
  JobMetrics& operator=(const JobMetrics&) = delete;

  // Before the updates of a rank; again after a restart, to no effect.
  void AddRank(const RankIdentity& identity);

  // `counts_for_job`: also into the job's steps, samples, loss and learning rate (one rank's step is
  // everybody's).
  void Step(int rank, const contract::StepEvent& event, bool counts_for_job);
  void Evaluation(const contract::EvaluationEvent& event);
  // `now` becomes the time of the last success.
  void Checkpoint(const contract::CheckpointEvent& event, std::chrono::system_clock::time_point now);
  void Memory(int rank, const contract::MemoryEvent& event);
  void Device(const DeviceSnapshot& device);
  void Restart(RestartReason reason);
  void RestartAlone(RestartReason reason, const std::string& role);
  void ExposedCommunication(double seconds);
  void MalformedEvent();

  // The whole exposition, with the process's own metrics as of now.
  std::string Render(MetricsFormat format, const JobFigures& figures) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::telemetry
