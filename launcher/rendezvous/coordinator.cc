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
      replicas_(static_cast<size_t>(options.replicas)),
      seen_(now) {
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
  it.member = false;
  it.stopping = false;
  it.highest_generation = highest_generation;
}

int64_t Coordinator::highest_generation(int replica) const {
  const Replica& it = replicas_[replica];
  return it.member ? generation_ : it.highest_generation;
}

int Coordinator::min_replicas() const {
  const int all = options_.replicas;
  return options_.min_replicas == 0 ? all : std::clamp(options_.min_replicas, 1, all);
}

int Coordinator::CountPresent() const {
  return static_cast<int>(
      std::count_if(replicas_.begin(), replicas_.end(), [](const Replica& it) { return it.present; }));
}

Coordinator::Clock::duration Coordinator::WaitBeforeLeavingOut() const {
  const bool has_run =
      generation_ >= 0 || std::any_of(replicas_.begin(), replicas_.end(), [](const Replica& it) {
        return it.present && it.highest_generation >= 0;
      });
  return has_run ? std::min(options_.elastic_wait, options_.return_deadline) : options_.return_deadline;
}

Coordinator::Actions Coordinator::Ready(int replica, int processes, Time now) {
  seen_ = now;
  Replica& it = replicas_[replica];
  if (!it.ready) it.ready_since = now;
  it.ready = true;
  it.processes = processes;
  const bool returns = options_.restarts_alone && !it.member && !it.done && !it.incarnations.empty();
  return state_ == State::kRunning && returns ? ResumeReplica(replica) : StartIfReady(now);
}

Coordinator::Actions Coordinator::ResumeReplica(int replica) {
  Replica& it = replicas_[replica];
  const size_t before = it.incarnations.size();
  if (static_cast<size_t>(it.processes) != before) {
    return StopAll(StopCause::kPeerLost, "replica " + std::to_string(replica) + " returns with " +
                                             std::to_string(it.processes) + " processes instead of " +
                                             std::to_string(before) + ": all ranks change");
  }
  it.member = true;
  it.ready = false;
  const int incarnation = 1 + *std::max_element(it.incarnations.begin(), it.incarnations.end());
  it.incarnations.assign(before, incarnation);
  return {Resume{.replica = replica, .incarnation = incarnation}};
}

Coordinator::Actions Coordinator::StartIfReady(Time now) {
  if (state_ != State::kGathering || (not_before_ && now < *not_before_)) return {};
  const bool enough = CountPresent() >= min_replicas();
  const Clock::duration wait = WaitBeforeLeavingOut();
  for (const Replica& replica : replicas_) {
    const bool left_out = !replica.present && enough && now >= replica.absent_since + wait;
    if (!left_out && (!replica.present || !replica.ready)) return {};
  }
  Start start;
  for (Replica& replica : replicas_) {
    generation_ = std::max(generation_, replica.highest_generation);
    start.processes.push_back(replica.present ? replica.processes : 0);
    replica.member = replica.present;
    replica.incarnations.assign(replica.present ? static_cast<size_t>(replica.processes) : 0, 0);
    replica.ready = false;
    replica.done = false;
    replica.stop_exit_code = 0;
  }
  start.generation = ++generation_;
  state_ = State::kRunning;
  started_ = now;
  resizing_ = false;
  failures_.clear();
  failures_before_loss_ = 0;
  lost_one_ = false;
  not_before_.reset();
  return {start};
}

Coordinator::Actions Coordinator::StopAll(StopCause cause, const std::string& message) {
  state_ = State::kStopping;
  for (Replica& replica : replicas_) replica.stopping = replica.present && replica.member;
  return {Stop{{.generation = generation_, .cause = cause, .message = message}}};
}

Coordinator::Actions Coordinator::Failed(int64_t generation, const FailureReport& report) {
  if (generation != generation_ || (state_ != State::kRunning && state_ != State::kStopping)) return {};
  if (options_.restarts_alone && state_ == State::kRunning) return {AskOwner{report}};
  if (resizing_) return {};  // it comes of the others' ranks being stopped; if not, it will come again
  if (failures_.size() < kMaxFailures) failures_.push_back(report);
  return state_ == State::kRunning ? StopAll(StopCause::kFailure, InWords(report)) : Actions();
}

Coordinator::Actions Coordinator::Stopped(int replica, int64_t generation, int exit_code, Time now) {
  seen_ = now;
  Replica& it = replicas_[replica];
  if (generation != generation_ || !it.stopping) return {};
  it.stopping = false;
  it.ready = true;
  it.ready_since = now;
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
  const auto ended_well = [](const Replica& it) {
    return !it.member || it.stop_exit_code == contract::kExitDone;
  };
  // The ranks had come to their end when they were asked to stop.
  if (resizing_ && std::all_of(replicas_.begin(), replicas_.end(), ended_well) && !lost_one_) {
    return FinishWith(contract::kExitDone, "");
  }
  for (Replica& replica : replicas_) {
    // It was free to go when its ranks were done, or the others went on; only now it is missed.
    if (!replica.present && (replica.done || options_.restarts_alone)) replica.absent_since = now;
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
  for (size_t i = 0; i < replicas_.size(); ++i) {
    const Replica& it = replicas_[i];
    const bool missed = it.member || (options_.restarts_alone && !it.incarnations.empty());
    if (EndsJob(i) && missed && !it.done) return {};
  }
  if (options_.ends_job.empty()) return FinishWith(contract::kExitDone, "");
  ending_ = Ending{.exit_code = contract::kExitDone, .message = ""};
  return StopAll(StopCause::kDone, "the job is done");
}

Coordinator::Actions Coordinator::Lost(int replica, const std::string& why, Time now) {
  return Gone(replica, "replica " + std::to_string(replica) + " is lost: " + why, StopCause::kPeerLost, now);
}

Coordinator::Actions Coordinator::Leaves(int replica, const std::string& why, Time now) {
  return Gone(replica, "replica " + std::to_string(replica) + " leaves: " + why, StopCause::kResize, now);
}

Coordinator::Actions Coordinator::Gone(int replica, const std::string& message, StopCause cause, Time now) {
  seen_ = now;
  Replica& it = replicas_[replica];
  if (state_ == State::kFinished || !it.present) return {};
  const bool missed = it.member && !(state_ == State::kRunning && it.done);
  it.present = false;
  it.ready = false;
  it.member = false;
  it.stopping = false;
  it.absent_since = now;

  Actions actions{NotePeerLost{replica, message}};
  if (state_ != State::kRunning && state_ != State::kStopping) return actions;
  if (state_ == State::kRunning && (!missed || options_.restarts_alone)) return actions;
  if (missed && !lost_one_) {
    lost_one_ = true;
    failures_before_loss_ = failures_.size();
  }
  Actions more;
  if (state_ == State::kRunning) {
    resizing_ = cause == StopCause::kResize;
    more = StopAll(cause, message);
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
  seen_ = now;
  if (state_ != State::kDeciding) return {};
  state_ = State::kGathering;
  if (delay > Clock::duration::zero()) not_before_ = now + delay;
  return StartIfReady(now);
}

Coordinator::Actions Coordinator::RestartAlone(int replica, int process, std::chrono::milliseconds delay) {
  Replica& it = replicas_[replica];
  if (state_ != State::kRunning || !it.member) return {};
  if (process < 0 || static_cast<size_t>(process) >= it.incarnations.size()) return {};
  const int incarnation = ++it.incarnations[static_cast<size_t>(process)];
  return {RestartProcess{.replica = replica,
                         .what = {.process = process, .incarnation = incarnation, .delay = delay}}};
}

Coordinator::Actions Coordinator::FinishWith(int exit_code, const std::string& message) {
  state_ = State::kFinished;
  return {Finish{exit_code, message}};
}

Coordinator::Actions Coordinator::Tick(Time now) {
  seen_ = now;
  if (const auto due = GrowthDue(); due && now >= *due) return Grow();
  if (state_ != State::kGathering) return {};
  if (not_before_ && now >= *not_before_) not_before_.reset();
  std::string missing;
  int given_up = 0;
  for (int i = 0; i < options_.replicas; ++i) {
    if (present(i) || now < replicas_[i].absent_since + options_.return_deadline) continue;
    missing += (given_up++ > 0 ? ", " : "") + std::to_string(i);
  }
  if (options_.replicas - given_up < min_replicas()) {
    return FinishWith(contract::kExitRendezvous,
                      (given_up == 1 ? "replica " : "replicas ") + missing + " did not " +
                          (generation_ > options_.highest_generation ? "return" : "come") + " within " +
                          InSeconds(options_.return_deadline));
  }
  return StartIfReady(now);
}

std::optional<Coordinator::Time> Coordinator::GrowthDue() const {
  if (state_ != State::kRunning || !options_.may_grow) return {};
  std::optional<Time> due;
  for (const Replica& replica : replicas_) {
    if (replica.done) return {};  // it comes to its end
    if (!replica.present || replica.member || !replica.ready) continue;
    const Time settled = replica.ready_since + options_.grow_settle;
    due = due ? std::min(*due, settled) : settled;
  }
  return due ? std::max(*due, started_ + options_.grow_interval) : due;
}

Coordinator::Actions Coordinator::Grow() {
  std::string newcomers;
  int members = 0, new_ones = 0;
  for (int i = 0; i < options_.replicas; ++i) {
    if (replicas_[i].member) ++members;
    if (!replicas_[i].present || replicas_[i].member) continue;
    newcomers += (new_ones++ > 0 ? ", " : "") + std::to_string(i);
  }
  resizing_ = true;
  return StopAll(StopCause::kResize, (new_ones == 1 ? "replica " : "replicas ") + newcomers +
                                         (new_ones == 1 ? " is" : " are") + " here: the job goes on with " +
                                         std::to_string(members + new_ones) + " replicas instead of " +
                                         std::to_string(members));
}

// Never in the past, so that its owner does not ask again and again.
std::optional<Coordinator::Time> Coordinator::next_deadline() const {
  std::optional<Time> next;
  const auto consider = [&](std::optional<Time> deadline) {
    if (deadline && *deadline > seen_) next = next ? std::min(*next, *deadline) : deadline;
  };
  consider(GrowthDue());
  if (state_ != State::kGathering) return next;
  consider(not_before_);
  const bool may_leave_out = CountPresent() >= min_replicas();
  for (const Replica& replica : replicas_) {
    if (replica.present) continue;
    consider(replica.absent_since + options_.return_deadline);
    if (may_leave_out) consider(replica.absent_since + WaitBeforeLeavingOut());
  }
  return next;
}

}  // namespace lockstep::rendezvous
