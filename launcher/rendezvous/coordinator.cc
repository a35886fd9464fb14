#include "launcher/rendezvous/coordinator.h"

#include <algorithm>
#include <utility>

#include "common/contract/exit_codes.h"
#include "launcher/rendezvous/silence_watch.h"

namespace lockstep::rendezvous {

namespace {

constexpr size_t kMaxFailures = 256;  // of a generation; all that come after are followers of the first

bool FollowsFromAnother(const FailureReport& failure) {
  return failure.own_trainer && (failure.exit_code == contract::kExitCollectiveLost ||
                                 failure.exit_code == contract::kExitRendezvous);
}

std::string InWords(const FailureReport& failure) {
  return "rank " + std::to_string(failure.rank) + " (replica " + std::to_string(failure.replica) +
         ") failed with exit code " + std::to_string(failure.exit_code) +
         (failure.reason.empty() ? "" : ": " + failure.reason);
}

}  // namespace

Coordinator::Coordinator(const Options& options, Time now)
    : options_(options),
      generation_(options.highest_generation),
      replicas_(static_cast<size_t>(options.replicas)) {
  for (Replica& replica : replicas_) replica.absent_since = now;
  replicas_[0].present = true;
}

Status Coordinator::MayJoin(int replica) const {
  if (replica == 0) return InvalidArgument("replica 0 is the one that serves this rendezvous");
  if (replica < 0 || replica >= options_.replicas) {
    return InvalidArgument("replica " + std::to_string(replica) + " of a job whose replicas are 0 to " +
                           std::to_string(options_.replicas - 1));
  }
  if (present(replica)) return Unavailable("replica " + std::to_string(replica) + " is here already");
  return {};
}

void Coordinator::Joined(int replica, int64_t highest_generation) {
  Replica& it = replicas_[replica];
  it.present = true;
  it.ready = false;
  it.stopping = false;
  it.highest_generation = highest_generation;
}

Coordinator::Actions Coordinator::Ready(int replica, int processes, Time now) {
  replicas_[replica].ready = true;
  replicas_[replica].processes = processes;
  return StartIfReady(now);
}

Coordinator::Actions Coordinator::StartIfReady(Time now) {
  if (state_ != State::kGathering || (not_before_ && now < *not_before_)) return {};
  for (const Replica& replica : replicas_) {
    if (!replica.present || !replica.ready) return {};
  }
  Start start;
  for (Replica& replica : replicas_) {
    generation_ = std::max(generation_, replica.highest_generation);
    start.processes.push_back(replica.processes);
    replica.ready = false;
    replica.done = false;
    replica.stop_exit_code = 0;
  }
  start.generation = ++generation_;
  state_ = State::kRunning;
  failures_.clear();
  failures_before_loss_ = 0;
  lost_one_ = false;
  not_before_.reset();
  return {start};
}

Coordinator::Actions Coordinator::StopAll(StopCause cause, const std::string& message) {
  state_ = State::kStopping;
  for (Replica& replica : replicas_) replica.stopping = replica.present;
  return {Stop{{.generation = generation_, .cause = cause, .message = message}}};
}

Coordinator::Actions Coordinator::Failed(int64_t generation, const FailureReport& report) {
  if (generation != generation_ || (state_ != State::kRunning && state_ != State::kStopping)) return {};
  if (failures_.size() < kMaxFailures) failures_.push_back(report);
  return state_ == State::kRunning ? StopAll(StopCause::kFailure, InWords(report)) : Actions();
}

Coordinator::Actions Coordinator::Stopped(int replica, int64_t generation, int exit_code, Time now) {
  Replica& it = replicas_[replica];
  if (generation != generation_ || !it.stopping) return {};
  it.stopping = false;
  it.ready = true;
  it.stop_exit_code = exit_code;
  return AllStopped() ? AfterStopped(now) : Actions();
}

bool Coordinator::AllStopped() const {
  return std::none_of(replicas_.begin(), replicas_.end(), [](const Replica& it) { return it.stopping; });
}

const FailureReport* Coordinator::Culprit() const {
  const auto end =
      lost_one_ ? failures_.begin() + static_cast<ptrdiff_t>(failures_before_loss_) : failures_.end();
  const auto own = std::find_if_not(failures_.begin(), end, FollowsFromAnother);
  if (own != end) return &*own;
  return lost_one_ || failures_.empty() ? nullptr : &failures_.front();
}

Coordinator::Actions Coordinator::AfterStopped(Time now) {
  if (ending_) {
    int exit_code = 0;
    for (const Replica& replica : replicas_) {
      if (exit_code == 0) exit_code = replica.stop_exit_code;
    }
    return FinishWith(ending_->exit_code.value_or(exit_code), ending_->message);
  }
  for (Replica& replica : replicas_) {
    // It was free to go when its ranks were done; only now it is missed.
    if (replica.done && !replica.present) replica.absent_since = now;
  }
  if (const FailureReport* culprit = Culprit()) {
    state_ = State::kDeciding;
    return {AskOwner{*culprit}};
  }
  state_ = State::kGathering;
  return StartIfReady(now);
}

Coordinator::Actions Coordinator::Done(int replica, int64_t generation) {
  if (generation != generation_ || state_ != State::kRunning) return {};
  replicas_[replica].done = true;
  const bool all = std::all_of(replicas_.begin(), replicas_.end(), [](const Replica& it) { return it.done; });
  return all ? FinishWith(contract::kExitDone, "") : Actions();
}

Coordinator::Actions Coordinator::Lost(int replica, const std::string& why, Time now) {
  Replica& it = replicas_[replica];
  if (state_ == State::kFinished || !it.present) return {};
  it.present = false;
  it.ready = false;
  it.stopping = false;
  it.absent_since = now;

  const std::string message = "replica " + std::to_string(replica) + " is lost: " + why;
  Actions actions{NotePeerLost{replica, message}};
  if (state_ != State::kRunning && state_ != State::kStopping) return actions;
  if (state_ == State::kRunning && it.done) return actions;
  if (!lost_one_) {
    lost_one_ = true;
    failures_before_loss_ = failures_.size();
  }
  Actions more;
  if (state_ == State::kRunning) {
    more = StopAll(StopCause::kPeerLost, message);
  } else if (AllStopped()) {
    more = AfterStopped(now);
  }
  actions.insert(actions.end(), more.begin(), more.end());
  return actions;
}

Coordinator::Actions Coordinator::RequestStop(const std::string& message, int exit_code_if_idle) {
  return EndJob({.exit_code = {}, .message = message}, exit_code_if_idle);
}

Coordinator::Actions Coordinator::DecideFinish(int exit_code, const std::string& message) {
  return EndJob({.exit_code = exit_code, .message = message}, exit_code);
}

Coordinator::Actions Coordinator::EndJob(Ending ending, int exit_code_if_idle) {
  if (state_ == State::kFinished || ending_) return {};
  if (state_ == State::kGathering || state_ == State::kDeciding) {
    return FinishWith(exit_code_if_idle, ending.message);
  }
  ending_ = std::move(ending);
  if (state_ == State::kRunning) return StopAll(StopCause::kTerminate, ending_->message);
  return {Stop{{.generation = generation_, .cause = StopCause::kTerminate, .message = ending_->message}}};
}

Coordinator::Actions Coordinator::DecideRestart(Clock::duration delay, Time now) {
  if (state_ != State::kDeciding) return {};
  state_ = State::kGathering;
  if (delay > Clock::duration::zero()) not_before_ = now + delay;
  return StartIfReady(now);
}

Coordinator::Actions Coordinator::FinishWith(int exit_code, const std::string& message) {
  state_ = State::kFinished;
  return {Finish{exit_code, message}};
}

Coordinator::Actions Coordinator::Tick(Time now) {
  if (state_ != State::kGathering) return {};
  if (not_before_ && now >= *not_before_) not_before_.reset();
  std::string missing;
  int count = 0;
  for (int i = 0; i < options_.replicas; ++i) {
    if (present(i) || now < replicas_[i].absent_since + options_.return_deadline) continue;
    missing += (count++ > 0 ? ", " : "") + std::to_string(i);
  }
  if (count > 0) {
    return FinishWith(contract::kExitRendezvous,
                      (count == 1 ? "replica " : "replicas ") + missing + " did not " +
                          (generation_ > options_.highest_generation ? "return" : "come") + " within " +
                          InSeconds(options_.return_deadline));
  }
  return StartIfReady(now);
}

std::optional<Coordinator::Time> Coordinator::next_deadline() const {
  if (state_ != State::kGathering) return {};
  std::optional<Time> next = not_before_;
  for (const Replica& replica : replicas_) {
    if (replica.present) continue;
    const Time deadline = replica.absent_since + options_.return_deadline;
    next = next ? std::min(*next, deadline) : deadline;
  }
  return next;
}

}  // namespace lockstep::rendezvous
