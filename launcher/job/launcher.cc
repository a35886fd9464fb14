#include "launcher/job/launcher.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include "common/contract/digest.h"
#include "common/contract/exit_codes.h"
#include "common/contract/token.h"
#include "launcher/job/machine.h"
#include "launcher/job/translate.h"
#include "launcher/process/failure_report.h"
#include "launcher/spec/json.h"
#include "launcher/spec/validate.h"
#include "launcher/telemetry/endpoints.h"

namespace lockstep::job {

namespace {

// How long the driver gets to say what happened to the GPU of a rank that failed.
constexpr auto kDriverGrace = std::chrono::milliseconds(250);

// "2.4 s"
std::string Seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

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

bool SomeCheckpointed(const std::vector<process::ExitReport>& reports) {
  return std::any_of(reports.begin(), reports.end(), [](const process::ExitReport& report) {
    return report.exit_code == contract::kExitCheckpointed;
  });
}

}  // namespace

Launcher::Launcher(RunOptions options)
    : options_(std::move(options)), rules_(RestartRulesOf(options_.job.run_policy)) {}

Launcher::~Launcher() {
  if (own_token_) ::unlink(token_file_.c_str());
}

Status Launcher::Start() {
  auto loop = EventLoop::Create();
  LOCKSTEP_RETURN_IF_ERROR(loop.status());
  loop_ = std::move(*loop);
  // The supervisor and the signals before any other thread: threads inherit the blocked ones.
  auto signals = process::SignalWatcher::Create(*loop_, {SIGINT, SIGTERM, SIGHUP, SIGQUIT},
                                                [this](int signal) { OnSignal(signal); });
  LOCKSTEP_RETURN_IF_ERROR(signals.status());
  signals_ = std::move(*signals);
  console_ = process::Console::Create(*loop_, {});
  supervisor_ = std::make_unique<process::Supervisor>(
      *loop_, process::Supervisor::Callbacks{
                  .on_output = [this](int local_rank, process::OutputStream stream,
                                      std::string_view bytes) { output_->Write(local_rank, stream, bytes); },
                  .on_event_line =
                      [this](int local_rank, std::string_view line) {
                        watch_->OnEventLine(rank_offset_ + local_rank, line);
                      },
                  .on_exit = [this](process::ExitReport& report) { OnExit(report); },
                  .on_all_stopped = [this](const auto& reports) { OnAllStopped(reports); },
              });
  console_->SetCongestionCallback(
      [this](bool congested) { congested ? supervisor_->PauseOutput() : supervisor_->ResumeOutput(); });

  LOCKSTEP_RETURN_IF_ERROR(Assign());
  LOCKSTEP_RETURN_IF_ERROR(ClaimDevices());
  auto folder = RunFolder::Create(options_.run_folder, options_.job.name);
  LOCKSTEP_RETURN_IF_ERROR(folder.status());
  folder_ = std::move(*folder);
  LOCKSTEP_RETURN_IF_ERROR(WriteFile(folder_->manifest_file(), spec::ToJson(job_) + "\n"));
  auto output = process::OutputLog::Create(*loop_, {.folder = folder_->path(), .console = console_.get()});
  LOCKSTEP_RETURN_IF_ERROR(output.status());
  output_ = std::move(*output);
  LOCKSTEP_RETURN_IF_ERROR(StartServing());
  LOCKSTEP_RETURN_IF_ERROR(WatchGpus());
  return Join();
}

Status Launcher::StartServing() {
  const spec::TrainingJob& job = options_.job;
  const int world_size = static_cast<int>(assignment_.processes.size()) * WorkerOf(job).replicas;
  metrics_ = std::make_unique<telemetry::JobMetrics>(LabelsOf(job));
  telemetry::JobDescription description = DescriptionOf(job, world_size);
  description.attempt = static_cast<int>(options_.attempt);
  state_ = std::make_unique<telemetry::JobState>(std::move(description), *metrics_,
                                                 std::chrono::steady_clock::now());
  const auto rule = job.trainer ? telemetry::HangRule::ForTrainer(job.run_policy.progress_deadline)
                                : telemetry::HangRule::ForProgram(job.run_policy.progress_deadline);
  watch_ =
      std::make_unique<Watch>(*loop_, *state_, *console_,
                              Watch::Options{.hang_rule = rule,
                                             .shows_progress = !options_.quiet,
                                             .on_hang = [this](const auto& verdict) { OnHang(verdict); }});
  http_ = std::make_unique<http::HttpServer>(
      http::ServerOptions{.address = job.http.address, .port = job.http.port});
  telemetry::RegisterEndpoints(*http_, *state_, *metrics_);
  LOCKSTEP_RETURN_IF_ERROR(http_->Start());
  LOCKSTEP_RETURN_IF_ERROR(WriteFile(folder_->http_address_file(), http_->address() + "\n"));
  Say("metrics at http://" + http_->address() + "/metrics, files in " + folder_->path());
  return {};
}

Status Launcher::Join() {
  token_file_ = options_.token_file.empty() ? folder_->token_file() : options_.token_file;
  // Replica 0 makes the token; for the others, and for those who keep one across launches, it is there
  // already.
  own_token_ = options_.replica == 0 && ::access(token_file_.c_str(), F_OK) != 0;
  auto token = own_token_ ? contract::Token::Create(token_file_) : contract::Token::Read(token_file_);
  if (!token.ok()) {
    own_token_ = false;
    return token.status();
  }
  // A token that was named is for other launchers too, which may come and go.
  own_token_ = own_token_ && options_.token_file.empty();

  const int replicas = WorkerOf(options_.job).replicas;
  auto membership = rendezvous::Membership::Create({
      .loop = loop_.get(),
      .token = *token,
      .job = options_.job.name,
      .manifest_digest = contract::Digest(spec::ToJson(options_.job)),
      .replica = options_.replica,
      .replicas = replicas,
      .rendezvous = options_.rendezvous,
      .callbacks = {
          .on_start_generation = [this](const auto& start) { StartGeneration(start); },
          .on_stop_generation = [this](const auto& stop) { StopGeneration(stop); },
          .on_finish = [this](int exit_code, const std::string& message) { Finish(exit_code, message); },
          .on_failure_reported = [this](const auto& first) { OnFailureReported(first); },
          .on_peer_lost = [this](int, const std::string& message) { SayAlways(message); },
          .on_peer_joined =
              [this](int replica, const std::string& host) {
                Say("replica " + std::to_string(replica) + " is here: " + host);
              },
      },
  });
  LOCKSTEP_RETURN_IF_ERROR(membership.status());
  membership_ = std::move(*membership);
  if (replicas > 1 && options_.replica == 0) {
    Say("waiting for " + std::to_string(replicas - 1) + " more at " + membership_->rendezvous_address() +
        "; on each: lockstep run MANIFEST --replica N --rendezvous HOST:PORT --token-file COPY-OF " +
        token_file_);
  }
  for (const std::string& notice : assignment_.notices) Say(notice);
  membership_->ReportReady(static_cast<int>(assignment_.processes.size()));
  if (const auto& deadline = options_.job.run_policy.active_deadline; deadline && options_.replica == 0) {
    loop_->After(*deadline, [this, deadline] {
      membership_->DecideFinish(
          contract::kExitPermanent,
          "runPolicy.activeDeadlineSeconds (" + std::to_string(deadline->count()) + ") are over");
    });
  }
  return {};
}

Outcome Launcher::Run() {
  loop_->Run();
  return {.exit_code = exit_code_,
          .message = end_message_,
          .asked_to_stop = stop_requests_ > 0,
          .failure = exit_code_ == contract::kExitDone ? std::nullopt : first_failure_};
}

void Launcher::StartGeneration(const rendezvous::GenerationStart& start) {
  if (!cannot_go_on_.empty()) return Finish(contract::kExitDeviceLost, cannot_go_on_);
  if (options_.job.trainer) {
    // A machine of several may have come back with fewer GPUs.
    const Status divides = spec::CheckBatchDivides(options_.job.trainer->batch_size, start.world_size);
    if (!divides.ok()) return Finish(contract::kExitUsage, divides.message());
  }
  placement::GenerationFacts facts;
  facts.generation = start.generation;
  facts.attempt = options_.attempt;
  facts.run = start.store_id;
  facts.self = static_cast<size_t>(options_.replica);
  for (const rendezvous::Member& member : start.replicas) {
    facts.replicas.push_back(
        {.role = kRole, .index = member.replica, .processes = member.processes, .address = member.host});
  }
  facts.master_address = start.master_address;
  facts.master_port = start.master_port;
  facts.store_address = start.store_address;
  facts.token_file = token_file_;
  facts.trainer_program = TrainerProgram();
  facts.trainer_config = folder_->manifest_file();
  facts.cuda_plugin = devices_.cuda_plugin;
  facts.inherited = inherited_;
  if (const Status mps = StartMps(facts); !mps.ok()) return Finish(contract::kExitUsage, mps.message());
  const Result<placement::Plan> plan = placement::MakeEnvironment(job_, assignment_, facts);
  if (!plan.ok()) return Finish(contract::kExitUsage, plan.status().message());
  if (!std::exchange(placement_said_, true)) SayPlacement(*plan);

  rank_offset_ = start.rank_offset;
  hang_.clear();
  stop_reported_ = false;
  failed_ = false;
  first_failure_.reset();
  started_ = std::chrono::steady_clock::now();
  std::vector<process::Launch> launches;
  for (const placement::ProcessPlan& process : plan->processes) {
    launches.push_back(LaunchOf(process, options_.job.trainer.has_value()));
  }
  if (const Status opened = output_->Begin(static_cast<int>(start.generation), launches); !opened.ok()) {
    SayAlways("output is not kept: " + opened.message());
  }
  running_ = static_cast<int>(launches.size());
  if (gpu_health_) gpu_health_->GenerationStarted();
  const auto now = std::chrono::steady_clock::now();
  state_->WorldChanged(start.world_size, start.rank_offset, static_cast<int>(launches.size()));
  state_->GenerationStarted(static_cast<int>(start.generation), now);
  if (start.generation > 0) Say("generation " + std::to_string(start.generation) + " starts");
  const std::vector<process::Launch> started = launches;
  if (const Status status = supervisor_->Start(std::move(launches)); !status.ok()) {
    return Finish(contract::kExitRetryable, status.message());
  }
  std::map<int, int> pids;
  for (const process::Launch& launch : started) {
    const int pid = supervisor_->pid(launch.local_rank);
    pids[launch.rank] = pid;
    state_->RankStarted(
        {.rank = launch.rank,
         .role = launch.role,
         .replica = options_.replica,
         .process = launch.local_rank,
         .device = RankDeviceOf(plan->processes[static_cast<size_t>(launch.local_rank)].devices)},
        pid, now);
  }
  watch_->Begin(std::move(pids));
}

void Launcher::OnHang(const telemetry::HangVerdict& verdict) {
  // The one to blame is killed, and the rest is as for any rank that fails.
  hang_ = verdict.message;
  SayAlways("the job hangs: " + verdict.message);
  for (const int rank : verdict.lagging) supervisor_->Signal(local_rank_of(rank), SIGKILL);
}

void Launcher::OnExit(process::ExitReport& report) {
  output_->Complete(report);
  if (--running_ == 0) mps_.reset();  // before everything below the launcher is swept away
  state_->RankExited(report.rank, report.exit_code, std::chrono::steady_clock::now());
  if (stop_reported_) return;
  switch (process::Judge(report, rules_, history_)) {
    case process::Verdict::kSuccess:
    case process::Verdict::kAskedToStop:
    case process::Verdict::kIgnored:
      return;
    case process::Verdict::kRetryable:
    case process::Verdict::kPermanent:
      break;
  }
  failed_ = true;
  if (!gpu_health_) return membership_->ReportFailure(FailureOf(report, hang_));
  // The driver may be about to say why.
  if (awaited_.empty()) loop_->After(kDriverGrace, [this] { ReportAwaited(); });
  awaited_.push_back(report);
}

void Launcher::StopGeneration(const rendezvous::GenerationStop& stop) {
  watch_->End();
  stop_reported_ = true;
  if (stop.cause == rendezvous::StopCause::kPeerLost) {
    state_->Restarting(
        telemetry::RestartReason::kReplicaLost,
        {.reason = kReplicaLostReason, .message = stop.message, .time = std::chrono::system_clock::now()},
        std::chrono::steady_clock::now());
    SayAlways(stop.message);
  }
  if (supervisor_->state() == process::Supervisor::State::kIdle) {
    // All had ended already, some of them badly: OnAllStopped has been, or will be once the driver was heard.
    if (!awaiting_stopped_) ReportStopped();
    return;
  }
  const spec::RunPolicy& policy = options_.job.run_policy;
  supervisor_->Stop(stop.cause == rendezvous::StopCause::kTerminate ? policy.termination_grace_period
                                                                    : policy.restart_grace_period);
}

void Launcher::OnAllStopped(const std::vector<process::ExitReport>& reports) {
  watch_->End();
  if (!awaited_.empty()) {
    awaiting_stopped_ = reports;
    return;
  }
  if (failed_) {
    std::vector<process::ExitReport> told = reports;
    for (process::ExitReport& report : told) report.device_trouble = TroubleOf(report.local_rank);
    console_->Write(process::OutputStream::kStderr, process::FailureReport(told));
  }

  exit_code_ = StoppedExitCode(reports);
  if (stop_reported_) {
    ReportStopped();
  } else if (failed_) {
    // StopGeneration is on its way.
  } else if (options_.replica == 0 && SomeCheckpointed(reports)) {
    membership_->DecideFinish(contract::kExitCheckpointed, "the ranks were asked to stop, and did");
  } else {
    membership_->ReportDone();
  }
}

void Launcher::OnFailureReported(const rendezvous::FailureReport& first) {
  const std::chrono::duration<double> ran = std::chrono::steady_clock::now() - started_;
  const process::Decision decision =
      process::Decide({ExitOf(first, options_.job.trainer.has_value())}, rules_, history_,
                      std::chrono::duration_cast<std::chrono::milliseconds>(ran));
  history_ = decision.history;
  first_failure_ = first;
  if (!cannot_go_on_.empty()) return membership_->DecideFinish(contract::kExitDeviceLost, cannot_go_on_);
  if (decision.action != process::Decision::Action::kRestart) {
    membership_->DecideFinish(decision.exit_code, decision.why);
    return;
  }
  state_->Restarting(RestartReasonOf(first.reason), TelemetryFailureOf(first),
                     std::chrono::steady_clock::now());
  SayAlways("restarting all ranks (" + std::to_string(history_.restarts) + " of " +
            std::to_string(rules_.max_restarts) + ")" +
            (decision.delay.count() > 0 ? " in " + Seconds(static_cast<double>(decision.delay.count()) / 1000)
                                        : ""));
  membership_->DecideRestart(decision.delay);
}

void Launcher::OnSignal(int signal) {
  stop_requests_ += 1;
  if (stop_requests_ == 1) {
    Say(std::string("asked to stop (") + ::strsignal(signal) + "); once more to stop at once");
    membership_->RequestStop(std::string("asked to stop: ") + ::strsignal(signal),
                             contract::kExitSignalBase + signal);
  } else {
    supervisor_->StopNow();
  }
}

void Launcher::Finish(int exit_code, const std::string& message) {
  const auto now = std::chrono::steady_clock::now();
  const bool succeeded = exit_code == contract::kExitDone;
  std::optional<telemetry::Failure> failure;
  if (!succeeded) {
    failure = first_failure_ ? TelemetryFailureOf(*first_failure_)
                             : telemetry::Failure{.exit_code = exit_code,
                                                  .reason = "Finished",
                                                  .message = message,
                                                  .time = std::chrono::system_clock::now()};
  }
  mps_.reset();
  state_->Finished(succeeded, failure, now);
  const telemetry::JobSnapshot snapshot = state_->Snapshot(now);
  std::string line = options_.job.name +
                     (succeeded ? ": succeeded" : ": ended with exit code " + std::to_string(exit_code)) +
                     " after " + Seconds(snapshot.elapsed_seconds);
  if (snapshot.restarts > 0) line += ", " + std::to_string(snapshot.restarts) + " restarts";
  if (!message.empty()) line += ": " + message;
  succeeded ? Say(line) : SayAlways(line);
  exit_code_ = exit_code;
  end_message_ = message;
  loop_->Stop();
}

void Launcher::Say(const std::string& line) {
  if (!options_.quiet) SayAlways(line);
}

void Launcher::SayAlways(const std::string& line) {
  console_->Write(process::OutputStream::kStderr, "lockstep: " + line + "\n");
}

}  // namespace lockstep::job
