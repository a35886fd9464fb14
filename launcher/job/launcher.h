#pragma once

#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/event_loop.h"
#include "launcher/http/server.h"
#include "launcher/job/gpu_health.h"
#include "launcher/job/mps_daemon.h"
#include "launcher/job/run_folder.h"
#include "launcher/job/runner.h"
#include "launcher/job/watch.h"
#include "launcher/ledger/device_ledger.h"
#include "launcher/placement/assign.h"
#include "launcher/process/console.h"
#include "launcher/process/output_log.h"
#include "launcher/process/restart_policy.h"
#include "launcher/process/signal_watcher.h"
#include "launcher/process/supervisor.h"
#include "launcher/rendezvous/membership.h"
#include "launcher/telemetry/job_metrics.h"
#include "launcher/telemetry/job_state.h"

namespace lockstep::job {

// One launcher of one job, from Start to Finish. Its life is that of its membership
// (rendezvous/membership.h):
//
//   ReportReady → StartGeneration ─┬─ all ranks end well ──────────────────────► ReportDone → Finish
//        ▲                         └─ one fails, hangs, or StopGeneration comes
//        └──── DecideRestart ◄──── on_failure_reported (replica 0) ◄─── ReportStopped ◄── all have ended
class Launcher {
 public:
  explicit Launcher(RunOptions options);
  ~Launcher();

  // Everything that can go wrong before a process runs. After it Run() returns how the job ended.
  Status Start();
  Outcome Run();

 private:
  Status Assign();
  Status ClaimDevices();
  Status CheckBatch() const;
  Status WatchGpus();
  Status StartServing();
  Status Join();

  void StartGeneration(const rendezvous::GenerationStart& start);
  void StopGeneration(const rendezvous::GenerationStop& stop);
  void OnExit(process::ExitReport& report);
  void OnAllStopped(const std::vector<process::ExitReport>& reports);
  void OnHang(const telemetry::HangVerdict& verdict);
  void OnFailureReported(const rendezvous::FailureReport& first);

  void SayPlacement(const placement::Plan& plan);
  // An MPS daemon for a generation, if one is asked for.
  Status StartMps(placement::GenerationFacts& facts);
  // What the driver said of a rank's GPU; empty: nothing.
  std::string TroubleOf(int local_rank) const;
  // Failures that waited for what the driver says of the ranks' GPUs.
  void ReportAwaited();
  // Assigns anew without the GPUs that failed; sets cannot_go_on_ when that is not possible.
  void LeaveOutFailedGpus();
  void ReportStopped();
  void OnSignal(int signal);
  void Finish(int exit_code, const std::string& message);

  // A line of the launcher's own on standard error; not in quiet mode.
  void Say(const std::string& line);
  void SayAlways(const std::string& line);
  int local_rank_of(int rank) const { return rank - rank_offset_; }

  const RunOptions options_;
  const process::RestartRules rules_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<process::SignalWatcher> signals_;
  std::unique_ptr<process::Console> console_;
  std::optional<RunFolder> folder_;
  std::string token_file_;
  bool own_token_ = false;
  placement::Environment inherited_;
  placement::DeviceRequest devices_;  // this machine, as the job may use it
  placement::DeviceAssignment assignment_;
  std::optional<ledger::DeviceLedger> claims_;
  spec::TrainingJob job_;  // the manifest as this machine carries it out
  std::unique_ptr<telemetry::JobMetrics> metrics_;
  std::unique_ptr<telemetry::JobState> state_;
  std::unique_ptr<http::HttpServer> http_;
  std::unique_ptr<process::OutputLog> output_;
  std::unique_ptr<process::Supervisor> supervisor_;
  std::unique_ptr<Watch> watch_;
  std::unique_ptr<GpuHealth> gpu_health_;  // with GPUs only
  std::unique_ptr<MpsDaemon> mps_;         // of this generation
  std::unique_ptr<rendezvous::Membership> membership_;

  int rank_offset_ = 0;                       // of this generation
  bool placement_said_ = false;               // as it is now
  int running_ = 0;                           // ranks of this generation that have not ended
  std::vector<process::ExitReport> awaited_;  // failures not yet reported
  std::optional<std::vector<process::ExitReport>> awaiting_stopped_;  // OnAllStopped, after them
  std::string cannot_go_on_;                       // why there can be no next generation here
  std::string hang_;                               // why we killed a rank of this generation
  bool failed_ = false;                            // a rank of this generation did, and it was reported
  bool stop_reported_ = false;                     // this generation's end was asked for by the membership
  std::chrono::steady_clock::time_point started_;  // this generation
  process::RestartHistory history_;                // replica 0
  std::optional<rendezvous::FailureReport> first_failure_;
  int stop_requests_ = 0;
  int exit_code_ = 0;
  std::string end_message_;
};

}  // namespace lockstep::job
