#include "launcher/job/launcher.h"

#include <unistd.h>

#include <cstring>
#include <fstream>
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
#include "launcher/telemetry/status_document.h"
#include "launcher/telemetry/trace_file.h"

namespace lockstep::job {

namespace {

constexpr char kSource[] = "lockstep";  // of its own lines

}  // namespace

Launcher::Launcher(RunOptions options)
    : options_(std::move(options)),
      rules_(RestartRulesOf(options_.job.run_policy)),
      input_(options_.input),
      restarts_alone_(spec::RestartsAlone(options_.job)) {}

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
                  .on_output =
                      [this](int local_rank, process::OutputStream stream, std::string_view bytes) {
                        output_->Write(local_rank, stream, bytes);
                        if (!preparing_) watch_->OnOutput(rank_offset_ + local_rank, stream, bytes);
                      },
                  .on_event_line =
                      [this](int local_rank, std::string_view line) {
                        if (!preparing_) watch_->OnEventLine(rank_offset_ + local_rank, line);
                      },
                  .on_exit =
                      [this](process::ExitReport& report) {
                        preparing_ ? output_->Complete(report) : OnExit(report);
                      },
                  .on_all_stopped =
                      [this](const auto& reports) {
                        preparing_ ? OnPrepared(reports.front()) : OnAllStopped(reports);
                      },
              });
  regroup_ = std::make_unique<Regroup>(
      *loop_, *supervisor_,
      Regroup::Options{.on_lost_peers = [this](int local_rank) { OnLostPeers(local_rank); },
                       .say = [this](const std::string& line) { SayAlways(line); }});
  console_->SetCongestionCallback(
      [this](bool congested) { congested ? supervisor_->PauseOutput() : supervisor_->ResumeOutput(); });

  LOCKSTEP_RETURN_IF_ERROR(Assign());
  const auto files = EnvironmentFilesHere();
  LOCKSTEP_RETURN_IF_ERROR(files.status());
  auto preparations = placement::Preparations(job_, parts_, inherited_, *files);
  LOCKSTEP_RETURN_IF_ERROR(preparations.status());
  preparations_ = std::move(*preparations);
  LOCKSTEP_RETURN_IF_ERROR(ClaimDevices());
  auto folder = RunFolder::Create(options_.run_folder, options_.job.name);
  LOCKSTEP_RETURN_IF_ERROR(folder.status());
  folder_ = std::move(*folder);
  LOCKSTEP_RETURN_IF_ERROR(WriteFile(folder_->manifest_file(), spec::ToJson(job_) + "\n"));
  auto output = process::OutputLog::Create(*loop_, {.folder = folder_->path(), .console = console_.get()});
  LOCKSTEP_RETURN_IF_ERROR(output.status());
  output_ = std::move(*output);
  rank_stacks_ = std::make_unique<RankStacks>(
      *loop_, RankStacks::Options{.folder = folder_->path(), .environment = inherited_});
  LOCKSTEP_RETURN_IF_ERROR(StartServing());
  LOCKSTEP_RETURN_IF_ERROR(WatchGpus());
  return Join();
}

Status Launcher::StartServing() {
  const spec::TrainingJob& job = options_.job;
  // As long as nothing else is known; see WorldChanged.
  const int world_size = static_cast<int>(assignment_.processes.size()) * replicas();
  metrics_ = std::make_unique<telemetry::JobMetrics>(LabelsOf(job));
  telemetry::JobDescription description = DescriptionOf(job, world_size);
  description.attempt = static_cast<int>(options_.attempt);
  record_ = std::make_unique<telemetry::RunRecord>(folder_->path(),
                                                   [this](const std::string& line) { SayAlways(line); });
  state_ = std::make_unique<telemetry::JobState>(std::move(description), *metrics_,
                                                 std::chrono::steady_clock::now(), record_.get());
  const auto rule = job.trainer ? telemetry::HangRule::ForTrainer(job.run_policy.progress_deadline)
                                : telemetry::HangRule::ForProgram(job.run_policy.progress_deadline);
  watch_ = std::make_unique<Watch>(*loop_, *state_, *console_,
                                   Watch::Options{.hang_rule = rule,
                                                  .shows_progress = options_.verbosity != Verbosity::kQuiet,
                                                  .on_hang = [this](const auto& verdict) { OnHang(verdict); },
                                                  .on_ready =
                                                      [this](int rank, bool regroups) {
                                                        // One that fails there starts alone, in the
                                                        // generation.
                                                        regroups = regroups && !restarts_alone_;
                                                        regroup_->Ready(local_rank_of(rank), regroups);
                                                      },
                                                  .on_regroup =
                                                      [this](int rank, int64_t step) {
                                                        return regroup_->Answered(local_rank_of(rank), step);
                                                      }});
  http_ = std::make_unique<http::HttpServer>(
      http::ServerOptions{.address = job.http.address, .port = job.http.port});
  telemetry::RegisterEndpoints(*http_, *state_, *metrics_, viewers_);
  LOCKSTEP_RETURN_IF_ERROR(http_->Start());
  LOCKSTEP_RETURN_IF_ERROR(WriteFile(folder_->http_address_file(), http_->address() + "\n"));
  Say("page at http://" + http_->address() + "/, metrics at /metrics, files in " + folder_->path());
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

  const spec::TrainingJob& job = options_.job;
  std::vector<bool> ends_job;
  for (int replica = 0; has_roles() && replica < replicas(); ++replica) {
    const auto role = static_cast<size_t>(spec::SeatOf(job, replica).role);
    ends_job.push_back(options_.whole || spec::EndsJob(job, job.roles[role].name));
  }
  auto membership = rendezvous::Membership::Create({
      .loop = loop_.get(),
      .token = *token,
      .job = job.name,
      .manifest_digest = contract::Digest(spec::ToJson(job)),
      .replica = options_.replica,
      .replicas = replicas(),
      .rendezvous = options_.rendezvous,
      .instance = options_.instance,
      .advertised_host = options_.host,
      .highest_generation = LastGeneration(),
      .min_replicas = job.run_policy.min_replicas.value_or(replicas()),
      .elastic_wait = options_.elastic_wait,
      // What a trainer without checkpoints has done would be lost.
      .may_grow = !job.trainer || job.trainer->checkpoint.has_value(),
      .grow_interval = options_.grow_interval,
      .ends_job = std::move(ends_job),
      .restarts_alone = restarts_alone_,
      .port_each = placement::ListenOnPortEach(job),
      .callbacks = {
          .on_start_generation = [this](const auto& start) { StartGeneration(start); },
          .on_stop_generation = [this](const auto& stop) { StopGeneration(stop); },
          .on_finish = [this](int exit_code, const std::string& message) { Finish(exit_code, message); },
          .on_failure_reported = [this](const auto& first) { OnFailureReported(first); },
          .on_restart_process = [this](const auto& restart) { RestartAlone(restart); },
          .on_peer_lost = [this](int replica, const std::string& message) { OnPeerLost(replica, message); },
          .on_peer_joined =
              [this](int replica, const std::string& host) {
                Say("replica " + std::to_string(replica) + " is here: " + host);
              },
      },
  });
  LOCKSTEP_RETURN_IF_ERROR(membership.status());
  membership_ = std::move(*membership);
  if (replicas() > 1 && options_.replica == 0) {
    Say("waiting for " + std::to_string(replicas() - 1) + " more at " + membership_->rendezvous_address() +
        "; on each: lockstep run MANIFEST --replica N --rendezvous HOST:PORT --token-file COPY-OF " +
        token_file_);
  }
  for (const std::string& notice : assignment_.notices) Say(notice);
  PrepareNext();
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

int64_t Launcher::LastGeneration() const {
  if (options_.instance.empty()) return -1;
  std::ifstream file(folder_->generation_file());
  std::string instance;
  int64_t generation = -1;
  return file >> instance >> generation && instance == options_.instance ? generation : -1;
}

Status Launcher::KeepGeneration(int64_t generation) const {
  if (options_.instance.empty()) return {};
  return WriteFile(folder_->generation_file(), options_.instance + " " + std::to_string(generation) + "\n");
}

void Launcher::KeepStatus() {
  const auto snapshot = state_->Snapshot(std::chrono::steady_clock::now());
  const Status written = WriteFile(folder_->status_file(), telemetry::StatusDocument(snapshot));
  if (!written.ok()) SayAlways("the run's status is not kept: " + written.message());
}

void Launcher::OnSignal(int signal) {
  if (ended_) return loop_->Stop();
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
  if (ending_) return;
  ending_ = Ending{.exit_code = exit_code, .message = message};
  starting_.reset();
  regroup_->GiveUp();
  using State = process::Supervisor::State;
  const State state = supervisor_->state();
  if (state == State::kStopping || state == State::kKilling) return;
  if (state != State::kParked && !preparing_) return End();
  // There is no generation for those that wait for it, and for what prepares it. OnAllStopped, or OnPrepared,
  // goes on.
  supervisor_->Stop(options_.job.run_policy.termination_grace_period);
}

void Launcher::End() {
  const auto& [exit_code, message] = *ending_;
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
  if (options_.trace_steps > 0) LeaveTrace();
  state_->Finished(succeeded, failure, now);
  KeepStatus();
  const telemetry::JobSnapshot snapshot = state_->Snapshot(now);
  std::string line = options_.job.name +
                     (succeeded ? ": succeeded" : ": ended with exit code " + std::to_string(exit_code)) +
                     " after " + InSeconds(snapshot.elapsed_seconds);
  if (snapshot.restarts > 0) line += ", " + std::to_string(snapshot.restarts) + " restarts";
  if (!message.empty()) line += ": " + message;
  succeeded ? Say(line) : SayAlways(line, log::Level::kError);
  exit_code_ = exit_code;
  end_message_ = message;
  ended_ = true;
  if (!viewers_.any(now)) return loop_->Stop();
  loop_->After(telemetry::Viewers::kLastLook, [this] { loop_->Stop(); });
}

void Launcher::LeaveTrace() {
  const Result<int> ranks = telemetry::MergeTrace(
      folder_->trace_folder(), folder_->trace_file(),
      {.job = options_.job.name, .run = folder_->path(), .steps = options_.trace_steps});
  if (!ranks.ok()) {
    SayAlways("there is no trace: " + ranks.status().message());
  } else if (*ranks == 0) {
    SayAlways("there is no trace: no rank came to the end of its training");
  } else {
    Say("trace of the last steps in " + folder_->trace_file() + ": open it at https://ui.perfetto.dev");
  }
}

void Launcher::SayMore(const std::string& line) {
  if (options_.verbosity == Verbosity::kVerbose) SayAlways(line, log::Level::kDebug);
}

void Launcher::Say(const std::string& line) {
  if (options_.verbosity != Verbosity::kQuiet) SayAlways(line, log::Level::kInfo);
}

void Launcher::SayAlways(const std::string& line, log::Level level) {
  console_->Write(process::OutputStream::kStderr, log::Line(level, kSource, line) + "\n");
}

void Launcher::SayFailures(const std::vector<process::ExitReport>& reports) {
  std::string text = process::FailureReport(reports);
  if (log::format() == log::Format::kJson && !text.empty()) {
    text.pop_back();
    text = log::JsonLine(log::Level::kError, kSource, text) + "\n";
  }
  console_->Write(process::OutputStream::kStderr, text);
}

}  // namespace lockstep::job
