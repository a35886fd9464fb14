#include <algorithm>
#include <map>
#include <utility>

#include "common/contract/exit_codes.h"
#include "launcher/job/advice.h"
#include "launcher/job/launcher.h"
#include "launcher/job/machine.h"
#include "launcher/job/place.h"
#include "launcher/job/translate.h"
#include "launcher/process/core_file.h"
#include "launcher/spec/validate.h"
#include "launcher/telemetry/text_format.h"
#include "launcher/telemetry/trace_file.h"

// The part of a Launcher that is one generation: how it starts, fails, stops and is over.
namespace lockstep::job {

namespace {

// How long the driver gets to say what happened to the GPU of a rank that failed.
constexpr auto kDriverGrace = std::chrono::milliseconds(250);

// What a replica's part of a stopped job came to: the first code that tells of something else than a
// checkpoint.
int StoppedExitCode(const std::vector<process::ExitReport>& reports) {
  for (const process::ExitReport& report : reports) {
    if (report.exit_code != contract::kExitDone && report.exit_code != contract::kExitCheckpointed) {
      return report.exit_code;
    }
  }
  return contract::kExitCheckpointed;
}

// How each rank ended last; it may have been started again before.
std::vector<process::ExitReport> LastOf(const std::vector<process::ExitReport>& reports) {
  std::map<int, process::ExitReport> last;
  for (const process::ExitReport& report : reports) last[report.local_rank] = report;
  std::vector<process::ExitReport> result;
  for (auto& [local_rank, report] : last) result.push_back(std::move(report));
  return result;
}

bool SomeCheckpointed(const std::vector<process::ExitReport>& reports) {
  return std::any_of(reports.begin(), reports.end(), [](const process::ExitReport& report) {
    return report.exit_code == contract::kExitCheckpointed;
  });
}

// "rank 2 (worker 2): pid 4711 on GPU-7a1b2c3d: python3 train.py"
std::string StartInWords(const process::Launch& launch, const telemetry::RankDevice& device, int pid) {
  const process::ExitReport who{.rank = launch.rank, .role = launch.role, .role_rank = launch.role_rank};
  std::string text = process::RankInWords(who) + ": pid " + std::to_string(pid) + " on ";
  if (device.devices.empty()) text += device.type;
  for (size_t i = 0; i < device.devices.size(); ++i) text += (i == 0 ? "" : ",") + device.devices[i];
  text += ":";
  for (const std::string& word : launch.command) text += " " + word;
  return text;
}

// The first rank that the job is about: its steps are the job's.
int SpeakerAmong(const spec::TrainingJob& job, const std::vector<placement::ReplicaFacts>& replicas) {
  int rank = 0;
  for (const placement::ReplicaFacts& replica : replicas) {
    if (spec::EndsJob(job, replica.role)) return rank;
    rank += replica.processes;
  }
  return 0;
}

}  // namespace

void Launcher::StartGeneration(const rendezvous::GenerationStart& start) {
  if (ending_) return;
  if (!cannot_go_on_.empty()) return Finish(contract::kExitDeviceLost, cannot_go_on_);
  if (const Status kept = KeepGeneration(start.generation); !kept.ok()) SayAlways(kept.message());
  if (DividesBatch(options_.job) && !IsElastic(options_.job)) {
    // A machine of several may have come back with fewer GPUs.
    const Status divides = spec::CheckBatchDivides(options_.job.trainer->batch_size, start.world_size);
    if (!divides.ok()) return Finish(contract::kExitUsage, divides.message());
  }
  placement::GenerationFacts facts;
  facts.generation = start.generation;
  facts.attempt = options_.attempt;
  facts.run = start.store_id;
  facts.incarnation = start.incarnation;
  facts.replicas = ReplicasOf(start);
  for (size_t i = 0; i < start.replicas.size(); ++i) {
    if (start.replicas[i].replica == options_.replica) facts.self = i;
  }
  facts.master_address = start.master_address;
  facts.master_port = start.master_port;
  facts.store_address = start.store_address;
  facts.token_file = token_file_;
  facts.trainer_program = OwnProgram(kTrainer);
  facts.trainer_config = folder_->manifest_file();
  facts.cuda_plugin = devices_.cuda_plugin;
  if (options_.trace_steps > 0) {
    facts.trace_folder = folder_->trace_folder();
    facts.trace_steps = options_.trace_steps;
    // What a generation before has left is not this one's.
    const Status cleared = telemetry::ClearTraceParts(facts.trace_folder);
    if (!cleared.ok()) SayAlways(cleared.message());
  }
  facts.inherited = inherited_;
  auto files = EnvironmentFilesHere();
  if (!files.ok()) return Finish(contract::kExitUsage, files.status().message());
  facts.environment_files = std::move(*files);
  if (const Status mps = StartMps(facts); !mps.ok()) return Finish(contract::kExitUsage, mps.message());
  if (const Status mpi = StartMpi(facts); !mpi.ok()) return Finish(contract::kExitUsage, mpi.message());
  const Result<placement::Plan> plan = placement::MakeEnvironment(job_, parts_, facts);
  if (!plan.ok()) return Finish(contract::kExitUsage, plan.status().message());
  if (!std::exchange(placement_said_, true)) SayPlacement(*plan);

  launches_.clear();
  identities_.clear();
  std::vector<Regroup::Place> places;
  for (const placement::ProcessPlan& process : plan->processes) {
    launches_.push_back(LaunchOf(options_.job, process));
    places.push_back({.launch = launches_.back(), .environment = ContractEnvironment(process)});
    identities_.push_back({.rank = process.rank,
                           .role = process.role,
                           .replica = options_.replica,
                           .process = process.local_rank,
                           .device = RankDeviceOf(process.devices),
                           .role_rank = process.role_rank,
                           .steps = spec::EndsJob(options_.job, process.role)});
  }
  regroup_->Choose(std::move(places));
  starting_ = start;
  StartProcessesOnceOthersAreGone();
}

void Launcher::StartProcessesOnceOthersAreGone() {
  if (!starting_ || !regroup_->all_gone()) return;
  const rendezvous::GenerationStart start = *std::exchange(starting_, std::nullopt);
  rank_offset_ = start.rank_offset;
  hang_.clear();
  stop_reported_ = false;
  resizing_ = false;
  ranks_done_ = false;
  failed_ = false;
  done_reported_ = false;
  stopping_others_ = false;
  others_had_their_time_ = false;
  ended_well_.clear();
  hung_.clear();
  stacks_.clear();
  ran_since_.clear();
  ForgetRestarts();
  first_failure_.reset();
  started_ = std::chrono::steady_clock::now();
  if (const Status opened = output_->Begin(static_cast<int>(start.generation), launches_); !opened.ok()) {
    SayAlways("output is not kept: " + opened.message());
  }
  running_ = static_cast<int>(launches_.size());
  if (gpu_health_) gpu_health_->GenerationStarted();
  const auto now = std::chrono::steady_clock::now();
  state_->WorldChanged(start.world_size, identities_, SpeakerAmong(options_.job, ReplicasOf(start)));
  state_->GenerationStarted(static_cast<int>(start.generation), now);
  SayGeneration(start);
  for (process::Launch& launch : launches_) {
    if (!regroup_->chosen().contains(launch.local_rank)) GiveInput(launch);
  }
  if (const Status status = supervisor_->Start(launches_, regroup_->chosen()); !status.ok()) {
    return Finish(contract::kExitRetryable, status.message());
  }
  regroup_->Started();
  std::map<int, int> pids;
  for (size_t i = 0; i < launches_.size(); ++i) {
    const int pid = supervisor_->pid(launches_[i].local_rank);
    pids[launches_[i].rank] = pid;
    state_->RankStarted(identities_[i], pid, now);
    SayMore(StartInWords(launches_[i], identities_[i].device, pid));
  }
  watch_->Begin(std::move(pids), LogPatternsOf(options_.job, launches_));
  KeepStatus();
}

void Launcher::GiveInput(process::Launch& launch) {
  if (launch.rank != 0 || launch.own_trainer) return;
  if (input_.lacks_its_beginning()) {
    Say("rank 0 gets what is left of standard input: it is no file that could be read from its beginning "
        "again");
  }
  launch.input = input_.Give();
}

void Launcher::OnHang(const telemetry::HangVerdict& verdict) {
  // The one to blame is killed, and the rest is as for any rank that fails.
  hang_ = verdict.message;
  SayAlways("the job hangs: " + verdict.message, log::Level::kError);
  std::vector<RankStacks::Rank> ranks;
  for (const int rank : verdict.lagging) {
    hung_.insert(rank);
    if (const pid_t pid = supervisor_->pid(local_rank_of(rank)); pid != 0) ranks.push_back({rank, pid});
  }
  rank_stacks_->Collect(ranks, verdict.message, [this, ranks](std::map<pid_t, RankStack> stacks) {
    stacks_ = std::move(stacks);
    KillHung(ranks);
  });
}

void Launcher::KillHung(const std::vector<RankStacks::Rank>& ranks) {
  for (const auto& [rank, pid] : ranks) {
    // Another may be there by now.
    if (supervisor_->pid(local_rank_of(rank)) == pid) supervisor_->Signal(local_rank_of(rank), SIGKILL);
  }
}

void Launcher::OnExit(process::ExitReport& report) {
  output_->Complete(report);
  if (report.core_dumped) {
    const auto index = static_cast<size_t>(report.local_rank);
    report.core_file = process::FindCoreFile(report.pid, launches_[index].working_directory);
  }
  if (const auto index = static_cast<size_t>(report.local_rank); index < assignment_.processes.size()) {
    report.advice = AdviceFor(report.last_lines, assignment_.processes[index]);
  }
  if (const auto stack = stacks_.find(report.pid); stack != stacks_.end()) {
    report.stack_lines = std::move(stack->second.lines);
    report.stack_file = std::move(stack->second.file);
    stacks_.erase(stack);
  }
  SayMore(process::RankInWords(report) + " ended after " +
          InSeconds(std::chrono::duration<double>(report.ended - report.started).count()) + ": " +
          process::ExitInWords(report) + "; its memory was " + telemetry::FormatBytes(report.max_rss_bytes) +
          " at most");
  regroup_->Ended(report.local_rank);
  // Before everything below the launcher is swept away.
  if (--running_ == 0) StopServers(/*all_is_well=*/!failed_ && !stop_reported_ && report.exit_code == 0);
  state_->RankExited(report.rank, report.exit_code, std::chrono::steady_clock::now());
  // One that waited, and is not to go on: from the loop, for the supervisor is not done with it.
  if (starting_) loop_->After({}, [this] { StartProcessesOnceOthersAreGone(); });
  if (stop_reported_) return StopOthers();
  switch (process::Judge(report, rules_, history_)) {
    case process::Verdict::kAskedToStop:
      // By somebody else; of a job of one role OnAllStopped says what becomes of it.
      if (!has_roles()) return;
      break;
    case process::Verdict::kSuccess:
    case process::Verdict::kIgnored:
      ended_well_.insert(report.local_rank);
      return ReportDoneOnce();
    case process::Verdict::kRetryable:
    case process::Verdict::kPermanent:
      break;
  }
  failed_ = true;
  if (restarts_alone_) SayFailures({report});
  if (!gpu_health_) return membership_->ReportFailure(FailureOf(report, HangOf(report.rank)));
  // The driver may be about to say why.
  if (awaited_.empty()) loop_->After(kDriverGrace, [this] { ReportAwaited(); });
  awaited_.push_back(report);
}

void Launcher::StopGeneration(const rendezvous::GenerationStop& stop) {
  if (ending_) return;
  watch_->End();
  ForgetRestarts();
  stop_reported_ = true;
  starting_.reset();
  if (stop.cause == rendezvous::StopCause::kPeerLost) {
    state_->Restarting(
        telemetry::RestartReason::kReplicaLost,
        {.reason = kReplicaLostReason, .message = stop.message, .time = std::chrono::system_clock::now()},
        std::chrono::steady_clock::now());
    SayAlways(stop.message);
  } else if (stop.cause == rendezvous::StopCause::kFailure && options_.replica != 0) {
    state_->FailedElsewhere(stop.message, std::chrono::steady_clock::now());
  } else if (stop.cause == rendezvous::StopCause::kResize) {
    resizing_ = true;
    state_->Resizing(std::chrono::steady_clock::now());
    SayAlways(stop.message);
  } else if (stop.cause == rendezvous::StopCause::kDone) {
    stopping_others_ = true;
    if (running_ > 0) Say(stop.message + "; the other ranks are stopped");
  }
  const bool failed =
      stop.cause == rendezvous::StopCause::kFailure || stop.cause == rendezvous::StopCause::kPeerLost;
  // A daemon of MPS is of one generation, and its clients cannot change it.
  const bool regroups = failed && !mps_;
  using State = process::Supervisor::State;
  if (supervisor_->state() == State::kIdle || (supervisor_->state() == State::kParked && regroups)) {
    // All had ended already, some of them badly: OnAllStopped has been, or will be once the driver was heard.
    if (!awaiting_stopped_) ReportStopped();
    return;
  }
  if (stopping_others_) return StopOthers();
  const spec::RunPolicy& policy = options_.job.run_policy;
  if (!regroups) regroup_->GiveUp();
  supervisor_->Stop(failed ? policy.restart_grace_period : policy.termination_grace_period,
                    regroups ? regroup_->Ask() : std::set<int>());
}

void Launcher::OnLostPeers(int local_rank) {
  // Otherwise it is known by now what failed.
  if (stop_reported_ || failed_) return;
  failed_ = true;
  const process::Launch& launch = launches_[static_cast<size_t>(local_rank)];
  const process::ExitReport report{.rank = launch.rank,
                                   .local_rank = local_rank,
                                   .role = launch.role,
                                   .role_rank = launch.role_rank,
                                   .own_trainer = launch.own_trainer,
                                   .exit_code = contract::kExitCollectiveLost,
                                   .reason = process::ExitReason::kError,
                                   .last_lines = output_->LastLines(local_rank)};
  rendezvous::FailureReport failure = FailureOf(report, "");
  failure.message = process::RankInWords(report) + " lost its peers";
  SayAlways(failure.message);
  membership_->ReportFailure(std::move(failure));
}

void Launcher::OnAllStopped(const std::vector<process::ExitReport>& reports) {
  if (ending_) return End();
  if (restarts_alone_ && !stop_reported_) {
    exit_code_ = StoppedExitCode(LastOf(reports));
    // Those that are due have waited for the sweeping.
    std::vector<int> due;
    for (const auto& [local_rank, again] : again_) {
      if (again.timer == 0) due.push_back(local_rank);
    }
    for (const int local_rank : due) StartAgain(local_rank);
    return;
  }
  watch_->End();
  if (!awaited_.empty()) {
    awaiting_stopped_ = reports;
    return;
  }
  if (failed_ && !restarts_alone_) {
    std::vector<process::ExitReport> told = reports;
    for (process::ExitReport& report : told) report.device_trouble = TroubleOf(report.local_rank);
    SayFailures(told);
  }

  const bool some_wait = supervisor_->state() == process::Supervisor::State::kParked;
  if (const std::string who = regroup_->WhoWaits(); !who.empty()) Say(who);
  exit_code_ = StoppedExitCode(restarts_alone_ ? LastOf(reports) : reports);
  // Those that wait have saved nothing.
  if (some_wait && exit_code_ == contract::kExitCheckpointed) exit_code_ = contract::kExitCollectiveLost;
  ranks_done_ = !some_wait && std::all_of(reports.begin(), reports.end(), [](const auto& report) {
    return report.exit_code == contract::kExitDone;
  });
  if (stop_reported_) {
    ReportStopped();
  } else if (some_wait || failed_ || has_roles()) {
    // StopGeneration is on its way, or will be when the other launchers' ranks are done; or after
    // OnLostPeers.
  } else if (options_.replica == 0 && SomeCheckpointed(reports)) {
    membership_->DecideFinish(contract::kExitCheckpointed, "the ranks were asked to stop, and did");
  } else {
    membership_->ReportDone();
  }
}

void Launcher::OnFailureReported(const rendezvous::FailureReport& first) {
  if (ending_) return;
  if (restarts_alone_) return OnFailedAlone(first);
  const std::chrono::duration<double> ran = std::chrono::steady_clock::now() - started_;
  const process::Decision decision = process::Decide(
      {ExitOf(first)}, rules_, history_, std::chrono::duration_cast<std::chrono::milliseconds>(ran));
  history_ = decision.history;
  first_failure_ = first;
  if (!cannot_go_on_.empty()) return membership_->DecideFinish(contract::kExitDeviceLost, cannot_go_on_);
  if (first.own_trainer && first.exit_code == contract::kExitSuperseded) {
    return membership_->Withdraw(contract::kExitSuperseded, first.message);
  }
  if (decision.action == process::Decision::Action::kIgnore) {
    return membership_->DecideFinish(first.exit_code, first.message + "; it was asked to stop, and did");
  }
  if (decision.action != process::Decision::Action::kRestart) {
    membership_->DecideFinish(decision.exit_code, decision.why);
    return;
  }
  state_->Restarting(RestartReasonOf(first.reason), TelemetryFailureOf(first),
                     std::chrono::steady_clock::now());
  const bool some_wait = supervisor_->state() == process::Supervisor::State::kParked;
  SayAlways(std::string("restarting ") + (some_wait ? "what is lost" : "all ranks") + " (" +
            std::to_string(history_.restarts) + " of " + std::to_string(rules_.max_restarts) + ")" +
            (decision.delay.count() > 0
                 ? " in " + InSeconds(static_cast<double>(decision.delay.count()) / 1000)
                 : ""));
  membership_->DecideRestart(decision.delay);
}

}  // namespace lockstep::job
