#include "launcher/rendezvous/follower.h"

#include <utility>
#include <variant>

#include "common/contract/exit_codes.h"

namespace lockstep::rendezvous {

namespace {

constexpr size_t kInstanceBytes = 16;

int ExitCodeOf(const Status& refusal) {
  const bool usage =
      refusal.code() == StatusCode::kInvalidArgument || refusal.code() == StatusCode::kPermissionDenied;
  if (refusal.code() == StatusCode::kAborted) return contract::kExitSuperseded;
  return usage ? contract::kExitUsage : contract::kExitRendezvous;
}

}  // namespace

Follower::Follower(Options options)
    : options_(std::move(options)), loop_(*options_.loop), generation_(options_.highest_generation) {
  LeaderLink::Options link{.loop = &loop_, .token = options_.token};
  link.job = options_.job;
  link.replica = options_.replica;
  link.address = options_.rendezvous;
  link.join = {
      .instance = options_.instance.empty() ? contract::RandomBytes(kInstanceBytes) : options_.instance,
      .manifest_digest = options_.manifest_digest,
      .replicas = options_.replicas,
      .host = options_.advertised_host};
  link.heartbeat = options_.heartbeat;
  link.silence = options_.silence;
  link.handler = {
      .on_joined = [this](const std::string& store_id, const std::string& host) { OnJoined(store_id, host); },
      .on_message = [this](const ControlMessage& message) { OnMessage(message); },
      .on_lost = [this](const std::string& why) { OnLost(why); },
      .on_refused =
          [this](const Status& why) {
            EndWith({.exit_code = ExitCodeOf(why),
                     .message = "rendezvous at " + options_.rendezvous + ": " + why.message()});
          }};
  link_ = std::make_unique<LeaderLink>(std::move(link));
  link_->set_highest_generation(generation_);
  link_->Start();
  AwaitLeader();
}

Follower::~Follower() {
  *alive_ = false;
  loop_.Cancel(deadline_timer_);
}

Result<std::unique_ptr<Membership>> Follower::Create(Options options) {
  if (options.rendezvous.empty()) {
    return InvalidArgument("replica " + std::to_string(options.replica) +
                           " needs --rendezvous HOST:PORT: where replica 0 listens (it prints it)");
  }
  const Result<contract::HostPort> target = contract::ParseHostPort(options.rendezvous);
  if (!target.ok()) return target.status();
  if (target->host.empty() || target->port == 0) {
    return InvalidArgument("rendezvous " + options.rendezvous + ": needs the host and the port of replica 0");
  }
  return std::unique_ptr<Membership>(new Follower(std::move(options)));
}

// --- what the owner says

void Follower::ReportReady(int processes) {
  processes_ = processes;
  link_->Send(ReadyMessage{processes_});
}

void Follower::ReportStopped(int exit_code) {
  if (!running_) return;
  running_ = false;
  stop_exit_code_ = exit_code;
  if (std::exchange(counted_on_, false)) {
    link_->Send(StoppedMessage{.generation = generation_, .exit_code = exit_code});
  } else {
    link_->Send(ReadyMessage{processes_});
  }
  if (ending_) Finish(ending_->exit_code.value_or(exit_code), ending_->message);
}

void Follower::ReportFailure(FailureReport report) {
  if (counted_on_) link_->Send(FailedMessage{.generation = generation_, .report = std::move(report)});
}

void Follower::ReportDone() {
  done_ = true;
  if (counted_on_) link_->Send(DoneMessage{generation_});
}

void Follower::RequestStop(const std::string& message, int exit_code_if_idle) {
  if (finished_) return;
  link_->Leave(LeavingMessage{message});
  counted_on_ = false;
  if (!running_) return Finish(exit_code_if_idle, message);
  EndWith({.exit_code = {}, .message = message});
}

// --- what the leader says

void Follower::OnJoined(const std::string& store_id, const std::string& host) {
  store_id_ = store_id;
  leader_host_ = host;
  loop_.Cancel(std::exchange(deadline_timer_, 0));
  if (processes_ > 0 && !running_) link_->Send(ReadyMessage{processes_});
  Post([this, host] {
    if (options_.callbacks.on_peer_joined) options_.callbacks.on_peer_joined(0, host);
  });
}

void Follower::OnMessage(const ControlMessage& message) {
  if (const auto* start = std::get_if<StartMessage>(&message)) {
    OnStart(*start);
  } else if (const auto* again = std::get_if<RestartMessage>(&message)) {
    if (!running_ || !counted_on_ || stop_ || again->generation != generation_) return;
    Post([this, restart = ProcessRestart{.process = again->process,
                                         .incarnation = again->incarnation,
                                         .delay = std::chrono::milliseconds(again->delay_ms)}] {
      if (!stop_) options_.callbacks.on_restart_process(restart);
    });
  } else if (const auto* stop = std::get_if<StopMessage>(&message)) {
    if (running_ && counted_on_ && stop->stop.generation == generation_) {
      StopRanks(stop->stop.cause, stop->stop.message);
    } else {
      link_->Send(StoppedMessage{.generation = stop->stop.generation, .exit_code = stop_exit_code_});
    }
  } else if (const auto* finish = std::get_if<FinishMessage>(&message)) {
    const Ending ending{.exit_code = finish->exit_code, .message = finish->message};
    link_->Leave(FinishSeenMessage{});
    EndWith(ending);
  }
}

void Follower::OnStart(const StartMessage& message) {
  if (running_ || ending_ || finished_) return;
  generation_ = message.generation;
  link_->set_highest_generation(generation_);
  running_ = true;
  counted_on_ = true;
  done_ = false;
  stop_exit_code_ = 0;
  stop_.reset();

  GenerationStart start{.generation = generation_, .replicas = message.replicas, .rank_offset = 0};
  for (const Member& member : start.replicas) {
    if (member.replica < options_.replica) start.rank_offset += member.processes;
    start.world_size += member.processes;
  }
  start.master_address = message.master_address;
  start.master_port = message.master_port;
  start.store_address =
      contract::FormatHostPort(leader_host_, contract::ParseHostPort(options_.rendezvous)->port);
  start.store_id = store_id_;
  start.incarnation = message.incarnation;
  Post([this, start] { options_.callbacks.on_start_generation(start); });
}

void Follower::OnLost(const std::string& why) {
  const std::string message = "replica 0 is lost: " + why + " (" + options_.rendezvous + ")";
  counted_on_ = false;
  Post([this, message] {
    if (options_.callbacks.on_peer_lost) options_.callbacks.on_peer_lost(0, message);
  });
  // Asked to end the job, and gone before it could say how: there is no next generation to wait for.
  if (stop_ == StopCause::kTerminate) {
    link_->Close();
    return EndWith({.exit_code = running_ ? std::optional<int>() : stop_exit_code_, .message = message});
  }
  AwaitLeader();
  StopRanks(StopCause::kPeerLost, message);
}

void Follower::AwaitLeader() {
  deadline_timer_ = loop_.After(options_.return_deadline, [this] {
    const std::string message = "replica 0 at " + options_.rendezvous + " did not " +
                                (store_id_.empty() ? "come" : "return") + " within " +
                                InSeconds(options_.return_deadline) + ": " + link_->last_error();
    link_->Close();
    EndWith({.exit_code = contract::kExitRendezvous, .message = message});
  });
}

void Follower::StopRanks(StopCause cause, const std::string& message) {
  if (!running_ || (stop_ && (cause != StopCause::kTerminate || stop_ == StopCause::kTerminate))) return;
  stop_ = cause;
  Post([this, stop = GenerationStop{.generation = generation_, .cause = cause, .message = message}] {
    options_.callbacks.on_stop_generation(stop);
  });
}

void Follower::EndWith(Ending ending) {
  if (ending_ || finished_) return;
  loop_.Cancel(std::exchange(deadline_timer_, 0));
  if (!running_ || done_) return Finish(ending.exit_code.value_or(stop_exit_code_), ending.message);
  ending_ = std::move(ending);
  StopRanks(StopCause::kTerminate, ending_->message);
}

void Follower::Finish(int exit_code, const std::string& message) {
  if (finished_) return;
  finished_ = true;
  loop_.Cancel(std::exchange(deadline_timer_, 0));
  Post([this, exit_code, message] { options_.callbacks.on_finish(exit_code, message); });
}

void Follower::Post(std::function<void()> callback) {
  loop_.After({}, [alive = alive_, callback = std::move(callback)] {
    if (*alive) callback();
  });
}

}  // namespace lockstep::rendezvous
