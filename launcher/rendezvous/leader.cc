#include "launcher/rendezvous/leader.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/contract/exit_codes.h"
#include "common/contract/store_address.h"

namespace lockstep::rendezvous {

namespace {

constexpr int kMaxProcesses = 4096;  // of a replica
constexpr size_t kSupersededKept = 1024;
constexpr std::chrono::seconds kNewcomerLimit{
    5};                                          // from the handshake to Join, and from a refusal to the end
constexpr std::chrono::seconds kFinishLimit{2};  // for the others to say that they have seen the end

bool IsLoopback(const std::string& host) { return host == "::1" || host.starts_with("127."); }
bool IsAllAddresses(const std::string& host) { return host == "::" || host == "0.0.0.0"; }

}  // namespace

Leader::Leader(Options options)
    : options_(std::move(options)),
      loop_(*options_.loop),
      coordinator_({.replicas = options_.replicas,
                    .min_replicas = options_.min_replicas,
                    .return_deadline = options_.return_deadline,
                    .elastic_wait = options_.elastic_wait,
                    .may_grow = options_.may_grow,
                    .grow_interval = options_.grow_interval,
                    .highest_generation = options_.highest_generation,
                    .ends_job = options_.ends_job,
                    .restarts_alone = options_.restarts_alone},
                   Clock::now()) {}

Result<std::unique_ptr<Membership>> Leader::Create(Options options) {
  std::unique_ptr<Leader> leader(new Leader(std::move(options)));
  const Options& its = leader->options_;
  StoreServer::Options server{.loop = its.loop, .token = its.token, .job = its.job, .name = its.instance};
  server.address = !its.rendezvous.empty() ? its.rendezvous : its.replicas == 1 ? "127.0.0.1:0" : ":0";
  if (its.replicas > 1) {
    server.on_launcher = [raw = leader.get()](std::unique_ptr<Channel> channel,
                                              const contract::PeerIdentity& who) {
      raw->OnLauncher(std::move(channel), who);
    };
  }
  Result<std::unique_ptr<StoreServer>> listening = StoreServer::Create(std::move(server));
  if (!listening.ok()) return listening.status();
  leader->server_ = std::move(*listening);
  leader->Apply({});
  return std::unique_ptr<Membership>(std::move(leader));
}

Leader::~Leader() {
  *alive_ = false;
  for (const EventLoop::TimerId timer : {heartbeat_timer_, deadline_timer_, finish_timer_})
    loop_.Cancel(timer);
  while (!newcomers_.empty()) RemoveNewcomer(newcomers_.begin()->first);
  while (!peers_.empty()) RemovePeer(peers_.begin()->first);
}

std::string Leader::rendezvous_address() const {
  return contract::FormatHostPort(IsAllAddresses(server_->host()) ? OwnHost() : server_->host(),
                                  server_->port());
}

// --- what the owner says

void Leader::ReportReady(int processes) { Apply(coordinator_.Ready(0, processes, Clock::now())); }

void Leader::ReportStopped(int exit_code) {
  Apply(coordinator_.Stopped(0, coordinator_.generation(), exit_code, Clock::now()));
}

void Leader::ReportFailure(FailureReport report) {
  report.replica = 0;
  Apply(coordinator_.Failed(coordinator_.generation(), report));
}

void Leader::ReportDone() { Apply(coordinator_.Done(0, coordinator_.generation())); }

void Leader::RequestStop(const std::string& message, int exit_code_if_idle) {
  Apply(coordinator_.RequestStop(message, exit_code_if_idle));
}

void Leader::DecideRestart(Clock::duration delay) { Apply(coordinator_.DecideRestart(delay, Clock::now())); }

void Leader::DecideRestartAlone(const FailureReport& failure, std::chrono::milliseconds delay) {
  Apply(coordinator_.RestartAlone(failure.replica, failure.process, delay));
}

void Leader::DecideFinish(int exit_code, const std::string& message) {
  Apply(coordinator_.DecideFinish(exit_code, message));
}

void Leader::Withdraw(int exit_code, const std::string& message) {
  if (std::exchange(withdrawn_, true)) return;
  std::vector<int> here;
  for (const auto& [replica, peer] : peers_) here.push_back(replica);
  while (!peers_.empty()) RemovePeer(peers_.begin()->first);
  Apply(coordinator_.DecideFinish(exit_code, message));
  for (const int replica : here) Apply(coordinator_.Lost(replica, "it is the new replica 0's", Clock::now()));
}

// --- other launchers

void Leader::OnLauncher(std::unique_ptr<Channel> channel, const contract::PeerIdentity& identity) {
  if (withdrawn_) return;
  if (led_ && identity.generation > coordinator_.generation()) {
    return Withdraw(contract::kExitSuperseded,
                    "replica " + std::to_string(identity.index) + " has seen generation " +
                        std::to_string(identity.generation) + ", and this replica 0 knows of " +
                        std::to_string(coordinator_.generation()) +
                        ": another replica 0 has taken its place, and this one ends");
  }
  const NewcomerId id = next_newcomer_++;
  channel->set_max_frame_bytes(kMaxControlFrameBytes);
  channel->set_handler(
      {.on_frame = [this, id, identity](std::string_view body) { OnJoin(id, identity, body); },
       .on_closed = [this, id](const Status&) { RemoveNewcomer(id); }});
  channel->Send(contract::EncodeWelcome({.status = {}, .generation = coordinator_.generation()}));
  const EventLoop::TimerId timer = loop_.After(kNewcomerLimit, [this, id] { RemoveNewcomer(id); });
  newcomers_.emplace(id, Newcomer{.channel = std::move(channel), .timer = timer});
}

void Leader::RemoveNewcomer(NewcomerId id) {
  const auto it = newcomers_.find(id);
  if (it == newcomers_.end()) return;
  loop_.Cancel(it->second.timer);
  newcomers_.erase(it);
}

bool Leader::IsSuperseded(int replica, const std::string& instance) const {
  return std::find(superseded_.begin(), superseded_.end(), std::pair(replica, instance)) != superseded_.end();
}

void Leader::SetHolder(int replica, const std::string& instance) {
  std::string& holder = holders_[replica];
  if (!holder.empty() && holder != instance) superseded_.emplace_back(replica, holder);
  if (superseded_.size() > kSupersededKept) superseded_.pop_front();
  holder = instance;
}

Status Leader::MayJoin(int replica, const JoinMessage& join, int64_t generation) {
  if (join.manifest_digest != options_.manifest_digest || join.replicas != options_.replicas) {
    return InvalidArgument("replica " + std::to_string(replica) +
                           " was started with another manifest of job " + options_.job +
                           " than replica 0; give both the same file");
  }
  if (finish_) return FailedPrecondition("job " + options_.job + " is over");
  const auto here = peers_.find(replica);
  // A replica 0 that was started again does not remember who came after whom; but the later one has seen a
  // later generation. Of one that has seen none nothing is known.
  const int64_t seen_there = here == peers_.end() ? -1 : coordinator_.highest_generation(replica);
  const bool comparable = seen_there >= 0 && generation >= 0 && here->second.instance != join.instance;
  const bool later = comparable && generation > seen_there;
  const bool earlier = comparable && generation < seen_there;
  if (earlier || IsSuperseded(replica, join.instance)) {
    return Aborted("replica " + std::to_string(replica) + " has another launcher now" +
                   (here == peers_.end() ? "" : ", on " + here->second.host) +
                   "; this one was replaced, and must end");
  }
  if (here != peers_.end() && here->second.instance == join.instance) {
    LosePeer(replica, "it connected anew");
  } else if (later) {
    LosePeer(replica, "its successor is here");
  }
  const Status status = coordinator_.MayJoin(replica);
  if (const auto peer = peers_.find(replica); peer != peers_.end()) {
    return {status.code(), status.message() + ", from " + peer->second.host};
  }
  return status;
}

void Leader::OnJoin(NewcomerId id, const contract::PeerIdentity& identity, std::string_view body) {
  Newcomer& newcomer = newcomers_.at(id);
  Result<ControlMessage> message = DecodeControl(body);
  const auto* join = message.ok() ? std::get_if<JoinMessage>(&*message) : nullptr;
  if (join == nullptr) return RemoveNewcomer(id);

  const int replica = identity.index;
  const Status status = MayJoin(replica, *join, identity.generation);
  newcomer.channel->Send(EncodeControl(JoinedMessage{status}));
  if (!status.ok()) {
    newcomer.channel->set_handler(
        {.on_frame = {}, .on_closed = [this, id](const Status&) { RemoveNewcomer(id); }});
    newcomer.channel->FinishSending();
    return;
  }

  Peer peer{.channel = std::move(newcomer.channel), .instance = join->instance, .host = join->host};
  RemoveNewcomer(id);
  if (peer.host.empty()) peer.host = contract::PeerAddress(peer.channel->fd()).host();
  peer.channel->set_handler(
      {.on_frame = [this, replica](std::string_view frame) { OnPeerFrame(replica, frame); },
       .on_closed = [this, replica](const Status& why) { LosePeer(replica, why.message()); }});
  peer.silence = std::make_unique<SilenceWatch>(SilenceWatch::Options{
      .loop = &loop_,
      .heartbeat = options_.heartbeat,
      .silence = options_.silence,
      .on_silent = [this, replica] { LosePeer(replica, "silent for " + InSeconds(options_.silence)); }});
  const std::string host = peer.host;
  SetHolder(replica, peer.instance);
  peers_.insert_or_assign(replica, std::move(peer));
  if (peers_.size() == 1) SendHeartbeats();
  coordinator_.Joined(replica, identity.generation);
  Post([this, replica, host] {
    if (options_.callbacks.on_peer_joined) options_.callbacks.on_peer_joined(replica, host);
  });
  Apply({});
}

void Leader::OnPeerFrame(int replica, std::string_view body) {
  peers_.at(replica).silence->Heard();
  Result<ControlMessage> decoded = DecodeControl(body);
  if (!decoded.ok()) return LosePeer(replica, decoded.status().message());
  ControlMessage& message = *decoded;
  if (const auto* ready = std::get_if<ReadyMessage>(&message)) {
    if (ready->processes < 1 || ready->processes > kMaxProcesses)
      return LosePeer(replica, "it has no processes");
    Apply(coordinator_.Ready(replica, ready->processes, Clock::now()));
  } else if (const auto* stopped = std::get_if<StoppedMessage>(&message)) {
    Apply(coordinator_.Stopped(replica, stopped->generation, stopped->exit_code, Clock::now()));
  } else if (auto* failed = std::get_if<FailedMessage>(&message)) {
    failed->report.replica = replica;
    Apply(coordinator_.Failed(failed->generation, failed->report));
  } else if (const auto* done = std::get_if<DoneMessage>(&message)) {
    Apply(coordinator_.Done(replica, done->generation));
  } else if (const auto* leaving = std::get_if<LeavingMessage>(&message)) {
    LosePeer(replica, leaving->why, /*leaves=*/true);
  } else if (std::holds_alternative<FinishSeenMessage>(message)) {
    LosePeer(replica, "it has seen the end");
  } else if (!std::holds_alternative<HeartbeatMessage>(message)) {
    LosePeer(replica, "it sent what only replica 0 sends");
  }
}

void Leader::LosePeer(int replica, const std::string& why, bool leaves) {
  const std::string what = why + " (" + peers_.at(replica).host + ")";
  RemovePeer(replica);
  const auto now = Clock::now();
  Apply(leaves ? coordinator_.Leaves(replica, what, now) : coordinator_.Lost(replica, what, now));
  FinishOnceSeen();
}

void Leader::RemovePeer(int replica) {
  const auto it = peers_.find(replica);
  peers_.erase(it);
  if (peers_.empty()) loop_.Cancel(std::exchange(heartbeat_timer_, 0));
}

void Leader::SendHeartbeats() {
  Broadcast(HeartbeatMessage{});
  heartbeat_timer_ = loop_.After(options_.heartbeat, [this] { SendHeartbeats(); });
}

void Leader::Broadcast(const ControlMessage& message) {
  const std::string frame = EncodeControl(message);
  for (auto& [replica, peer] : peers_) peer.channel->Send(frame);
}

// --- what the coordinator decides

void Leader::Apply(const Coordinator::Actions& actions) {
  for (const Coordinator::Action& action : actions) {
    std::visit([this](const auto& what) { Do(what); }, action);
  }
  loop_.Cancel(std::exchange(deadline_timer_, 0));
  if (const auto deadline = coordinator_.next_deadline()) {
    deadline_timer_ =
        loop_.After(*deadline - Clock::now(), [this] { Apply(coordinator_.Tick(Clock::now())); });
  }
}

std::string Leader::OwnHost() const {
  if (!options_.advertised_host.empty()) return options_.advertised_host;
  // As the others reached it. One on this machine may have come over the loopback, which is no address for
  // the rest.
  std::string host = "127.0.0.1";
  for (const auto& [replica, peer] : peers_) {
    const std::string local = contract::LocalAddress(peer.channel->fd()).host();
    if (local.empty()) continue;
    host = local;
    if (!IsLoopback(local)) break;
  }
  return host;
}

std::string Leader::HostOf(int replica) const {
  const auto peer = peers_.find(replica);
  // On the same machine as this.
  return peer == peers_.end() || IsLoopback(peer->second.host) ? OwnHost() : peer->second.host;
}

void Leader::Do(const Coordinator::Start& start) {
  int world_size = 0;
  for (const int processes : start.processes) world_size += processes;
  Result<PortReservation> port = PortReservation::Create(options_.port_each ? world_size : 1);
  if (!port.ok()) {
    return Apply(coordinator_.DecideFinish(contract::kExitRendezvous,
                                           "no port for MASTER_PORT: " + port.status().message()));
  }
  master_port_ = std::move(*port);
  led_ = true;

  StartMessage message{.generation = start.generation, .replicas = {}, .master_address = OwnHost()};
  message.master_port = master_port_->port();
  for (int replica = 0; replica < options_.replicas; ++replica) {
    if (start.processes[replica] == 0) continue;
    message.replicas.push_back(
        {.replica = replica, .host = HostOf(replica), .processes = start.processes[replica]});
  }
  start_ = message;
  // Before anyone can hear of the generation: its ranks connect at once.
  server_->BeginGeneration(start.generation, world_size);
  Broadcast(message);

  GenerationStart own{.generation = start.generation, .replicas = message.replicas, .rank_offset = 0};
  own.world_size = world_size;
  own.master_address = message.master_address;
  own.master_port = message.master_port;
  own.store_address = contract::FormatHostPort(
      IsAllAddresses(server_->host()) ? "127.0.0.1" : server_->host(), server_->port());
  own.store_id = server_->store_id();
  Post([this, own] { options_.callbacks.on_start_generation(own); });
}

// The others are not told: who looks for the ranks of one that returned finds them in the store, or by a
// name.
void Leader::Do(const Coordinator::Resume& resume) {
  for (Member& member : start_.replicas) {
    if (member.replica == resume.replica) member.host = HostOf(resume.replica);
  }
  StartMessage message = start_;
  message.incarnation = resume.incarnation;
  peers_.at(resume.replica).channel->Send(EncodeControl(message));
}

void Leader::Do(const Coordinator::RestartProcess& restart) {
  const ProcessRestart& what = restart.what;
  if (restart.replica == 0) {
    return Post([this, what, generation = coordinator_.generation()] {
      const bool runs = coordinator_.state() == Coordinator::State::kRunning;
      if (runs && coordinator_.generation() == generation) options_.callbacks.on_restart_process(what);
    });
  }
  peers_.at(restart.replica)
      .channel->Send(EncodeControl(RestartMessage{.generation = coordinator_.generation(),
                                                  .process = what.process,
                                                  .incarnation = what.incarnation,
                                                  .delay_ms = what.delay.count()}));
}

void Leader::Do(const Coordinator::Stop& stop) {
  // Ranks that are asked to end may need each other to write a checkpoint.
  const StopCause cause = stop.what.cause;
  if (cause != StopCause::kTerminate && cause != StopCause::kResize && cause != StopCause::kDone)
    server_->EndGeneration(stop.what.message);
  Broadcast(StopMessage{stop.what});
  Post([this, what = stop.what] { options_.callbacks.on_stop_generation(what); });
}

void Leader::Do(const Coordinator::AskOwner& ask) {
  Post([this, failure = ask.failure] { options_.callbacks.on_failure_reported(failure); });
}

void Leader::Do(const Coordinator::NotePeerLost& note) {
  Post([this, note] {
    if (options_.callbacks.on_peer_lost) options_.callbacks.on_peer_lost(note.replica, note.message);
  });
}

void Leader::Do(const Coordinator::Finish& finish) {
  finish_ = finish;
  server_->EndGeneration("the job is over");
  master_port_.reset();
  Broadcast(FinishMessage{.exit_code = finish.exit_code, .message = finish.message});
  finish_timer_ = loop_.After(kFinishLimit, [this] {
    while (!peers_.empty()) RemovePeer(peers_.begin()->first);
    FinishOnceSeen();
  });
  FinishOnceSeen();
}

void Leader::FinishOnceSeen() {
  if (!finish_ || !peers_.empty() || finished_) return;
  finished_ = true;
  loop_.Cancel(std::exchange(finish_timer_, 0));
  Post([this] { options_.callbacks.on_finish(finish_->exit_code, finish_->message); });
}

void Leader::Post(std::function<void()> callback) {
  loop_.After({}, [alive = alive_, callback = std::move(callback)] {
    if (*alive) callback();
  });
}

}  // namespace lockstep::rendezvous
