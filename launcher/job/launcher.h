#pragma once

#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/event_loop.h"
#include "common/log.h"
#include "launcher/http/server.h"
#include "launcher/job/gpu_health.h"
#include "launcher/job/mpi_server.h"
#include "launcher/job/mps_daemon.h"
#include "launcher/job/prepare_lock.h"
#include "launcher/job/rank_stacks.h"
#include "launcher/job/regroup.h"
#include "launcher/job/run_folder.h"
#include "launcher/job/runner.h"
#include "launcher/job/standard_input.h"
#include "launcher/job/watch.h"
#include "launcher/ledger/device_ledger.h"
#include "launcher/placement/assign.h"
#include "launcher/process/console.h"
#include "launcher/process/output_log.h"
#include "launcher/process/restart_policy.h"
#include "launcher/process/signal_watcher.h"
#include "launcher/process/supervisor.h"
#include "launcher/rendezvous/membership.h"
#include "launcher/spec/roles.h"
#include "launcher/telemetry/job_metrics.h"
#include "launcher/telemetry/job_state.h"
#include "launcher/telemetry/viewers.h"

namespace lockstep::job {

// One launcher of one job, from Start to Finish. Its life is that of its membership
// (rendezvous/membership.h):
//
//   ReportReady → StartGeneration ─┬─ all ranks end well ──────────────────────► ReportDone → Finish
//        ▲                         └─ one fails, hangs, or StopGeneration comes
//        └──── DecideRestart ◄──── on_failure_reported (replica 0) ◄─── ReportStopped ◄── all have ended
//                                                                                         or wait (regroup.h)
//
// A job of several roles (spec/roles.h) is done when those that it is about are, while others may still run;
// and where it restarts alone, a rank that fails is started again in the same generation (launcher_roles.cc).
// What comes before the first generation is launcher_prepare.cc, one generation launcher_generation.cc, the
// machine's devices launcher_devices.cc.
class Launcher {
 public:
  explicit Launcher(RunOptions options);
  ~Launcher();

  // Everything that can go wrong before a process runs. After it Run() returns how the job ended.
  Status Start();
  Outcome Run();

 private:
  Status Assign();
  void NoteWhatFrameworksNeed();
  // This machine's part of the job.
  Result<std::vector<placement::DeviceAssignment>> AssignHere() const;
  // Read anew for every generation: a secret may have been renewed.
  Result<placement::EnvironmentFiles> EnvironmentFilesHere() const;
  Status ClaimDevices();
  // Where the launchers of this machine keep what they lock.
  Result<std::string> LockFolder() const;
  Status CheckBatch() const;
  Status WatchGpus();
  Status StartServing();
  Status Join();

  // Runs the next of `preparations_`; after the last ReportReady.
  void PrepareNext();
  // Returns once the lock is had, or what it is for has been done by another launcher.
  void AwaitPrepareLock(bool said);
  void RunPreparation();
  void OnPrepared(const process::ExitReport& report);

  void StartGeneration(const rendezvous::GenerationStart& start);
  // The second half of it: once those that waited, and do not go on, have ended.
  void StartProcessesOnceOthersAreGone();
  // Of a program's rank 0.
  void GiveInput(process::Launch& launch);
  void StopGeneration(const rendezvous::GenerationStop& stop);
  void OnExit(process::ExitReport& report);
  void OnAllStopped(const std::vector<process::ExitReport>& reports);
  // Says that those of this launcher that the job is about have ended well, once.
  void ReportDoneOnce();
  void OnFailedAlone(const rendezvous::FailureReport& failure);
  void RestartAlone(const rendezvous::ProcessRestart& restart);
  void StartAgain(int local_rank);
  void ForgetRestarts();
  // Why the rank was killed by us, or empty.
  std::string HangOf(int rank);
  // After kDone: stops what does not end by itself.
  void StopOthers();
  void OnPeerLost(int replica, const std::string& message);
  // A process that can regroup lost the others, and nothing failed that it could follow from.
  void OnLostPeers(int local_rank);
  void OnHang(const telemetry::HangVerdict& verdict);
  void KillHung(const std::vector<RankStacks::Rank>& ranks);
  void OnFailureReported(const rendezvous::FailureReport& first);

  // What a launcher of the same name left in this folder; -1: nothing.
  int64_t LastGeneration() const;
  Status KeepGeneration(int64_t generation) const;
  // For `lockstep runs`: as the job is now.
  void KeepStatus();
  // Makes one file of what the ranks have left.
  void LeaveTrace();
  void SayGeneration(const rendezvous::GenerationStart& start);
  void SayPlacement(const placement::Plan& plan);
  // An MPS daemon for a generation, if one is asked for.
  Status StartMps(placement::GenerationFacts& facts);
  // A PMIx server for a generation, if its ranks are MPI's or Horovod's.
  Status StartMpi(placement::GenerationFacts& facts);
  // All ranks of this launcher have ended: what served them does.
  void StopServers(bool all_is_well);
  // What the driver said of a rank's GPU; empty: nothing.
  std::string TroubleOf(int local_rank) const;
  // Failures that waited for what the driver says of the ranks' GPUs.
  void ReportAwaited();
  // Assigns anew without the GPUs that failed; sets cannot_go_on_ when that is not possible.
  void LeaveOutFailedGpus();
  void ReportStopped();
  void OnSignal(int signal);
  // Stops those that still wait for a next generation, and then End(). The first one counts.
  void Finish(int exit_code, const std::string& message);
  void End();

  // A line of the launcher's own on standard error: in verbose mode only; not in quiet mode; always.
  void SayMore(const std::string& line);
  void Say(const std::string& line);
  void SayAlways(const std::string& line, log::Level level = log::Level::kWarning);
  // The report on those that failed.
  void SayFailures(const std::vector<process::ExitReport>& reports);
  int local_rank_of(int rank) const { return rank - rank_offset_; }
  // How many launchers the job has.
  int replicas() const { return options_.whole ? 1 : spec::ReplicasOf(options_.job); }
  bool has_roles() const { return options_.job.roles.size() > 1; }
  const spec::Role& role_here() const;
  // Of its program; kNone for the trainer.
  spec::Framework framework_here() const;
  // Who takes part in a generation, as placement has it.
  std::vector<placement::ReplicaFacts> ReplicasOf(const rendezvous::GenerationStart& start) const;

  const RunOptions options_;
  const process::RestartRules rules_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<process::SignalWatcher> signals_;
  std::unique_ptr<process::Console> console_;
  std::optional<RunFolder> folder_;
  StandardInput input_;
  std::string token_file_;
  bool own_token_ = false;
  placement::Environment inherited_;
  placement::DeviceRequest devices_;                // this machine, as the job may use it
  std::vector<placement::DeviceAssignment> parts_;  // a role each
  placement::DeviceAssignment assignment_;          // all of them together
  std::optional<ledger::DeviceLedger> claims_;
  spec::TrainingJob job_;  // the manifest as this machine carries it out
  std::unique_ptr<telemetry::JobMetrics> metrics_;
  std::unique_ptr<telemetry::RunRecord> record_;
  std::unique_ptr<telemetry::JobState> state_;
  telemetry::Viewers viewers_;
  std::unique_ptr<http::HttpServer> http_;
  std::unique_ptr<process::OutputLog> output_;
  std::unique_ptr<process::Supervisor> supervisor_;
  std::unique_ptr<Regroup> regroup_;
  std::unique_ptr<Watch> watch_;
  std::unique_ptr<RankStacks> rank_stacks_;
  std::map<pid_t, RankStack> stacks_;      // of ranks of this generation that hung
  std::unique_ptr<GpuHealth> gpu_health_;  // with GPUs only
  std::unique_ptr<MpsDaemon> mps_;         // of this generation
  std::unique_ptr<MpiServer> mpi_;         // likewise
  std::unique_ptr<rendezvous::Membership> membership_;

  std::vector<placement::Preparation> preparations_;  // that are still to be done
  std::optional<PrepareLock> prepare_lock_;           // of the first of them
  bool preparing_ = false;                            // it runs
  process::RestartHistory prepare_history_;

  std::optional<rendezvous::GenerationStart> starting_;  // not before others have ended
  int rank_offset_ = 0;                                  // of this generation
  bool placement_said_ = false;                          // as it is now
  int running_ = 0;                                      // ranks of this generation that have not ended
  std::vector<process::ExitReport> awaited_;             // failures not yet reported
  std::optional<std::vector<process::ExitReport>> awaiting_stopped_;  // OnAllStopped, after them
  // A process that is to be started again alone.
  struct Again {
    int incarnation = 0;
    EventLoop::TimerId timer = 0;  // 0: it is due
  };
  const bool restarts_alone_;
  std::vector<process::Launch> launches_;            // of this generation, by local rank
  std::vector<telemetry::RankIdentity> identities_;  // likewise
  std::map<int, Again> again_;                       // by local rank
  std::set<int> ended_well_;                         // local ranks
  std::set<int> hung_;                               // ranks that were killed for it
  bool done_reported_ = false;
  bool stopping_others_ = false;  // kDone
  bool others_had_their_time_ = false;
  EventLoop::TimerId others_timer_ = 0;
  std::map<int, std::chrono::steady_clock::time_point> ran_since_;  // replica 0: by rank that restarted
  std::string cannot_go_on_;                       // why there can be no next generation here
  std::string hang_;                               // why we killed a rank of this generation
  bool failed_ = false;                            // a rank of this generation did, and it was reported
  bool stop_reported_ = false;                     // this generation's end was asked for by the membership
  bool resizing_ = false;                          // in order to go on with other replicas
  bool ranks_done_ = false;                        // all of this generation ended well
  std::chrono::steady_clock::time_point started_;  // this generation
  process::RestartHistory history_;                // replica 0
  std::optional<rendezvous::FailureReport> first_failure_;
  int stop_requests_ = 0;
  struct Ending {
    int exit_code = 0;
    std::string message = {};
  };
  std::optional<Ending> ending_;  // decided by Finish
  bool ended_ = false;            // End() was here
  int exit_code_ = 0;
  std::string end_message_;
};

}  // namespace lockstep::job
