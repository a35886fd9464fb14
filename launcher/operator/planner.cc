#include "launcher/operator/planner.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "launcher/operator/names.h"
#include "launcher/operator/planner_state.h"

namespace lockstep::op {

using std::chrono::seconds;

// After replica 0 has ended well, for the others to.
constexpr seconds kStragglers{10};

const ChildJob* Planner::ChildOf(const std::string& role) const {
  for (const ChildJob& child : observed_.jobs) {
    if (child.role == role && current(child)) return &child;
  }
  return nullptr;
}

const ChildJob* Planner::AnyChild() const {
  for (const ChildJob& child : observed_.jobs) {
    if (current(child)) return &child;
  }
  return nullptr;
}

std::vector<const ChildPod*> Planner::CurrentPods() const {
  std::vector<const ChildPod*> pods;
  for (const ChildPod& pod : observed_.pods) {
    if (pod.attempt == next_.attempt) pods.push_back(&pod);
  }
  return pods;
}

std::set<int> Planner::Replicas(const std::function<bool(const ChildPod&)>& in) const {
  std::set<int> replicas;
  for (const ChildPod* pod : CurrentPods()) {
    if (!pod->delete_by && in(*pod)) replicas.insert(ReplicaOf(*pod));
  }
  return replicas;
}

std::set<int> Planner::Running() const {
  return Replicas([](const ChildPod& pod) {
    return pod.phase == PodPhase::kRunning || pod.phase == PodPhase::kSucceeded;
  });
}

bool Planner::Enough(const std::set<int>& replicas) const {
  const int count = static_cast<int>(replicas.size());
  if (count >= next_.replicas.desired) return true;
  return (count >= NeededReplicas(job()) || GoesOnAlone()) && replicas.contains(0);
}

bool Planner::GoesOnAlone() const {
  const bool ran = old_.phase == Phase::kRunning || old_.phase == Phase::kRestarting;
  return ran && BeganThisAttempt() && spec::RestartsAlone(job());
}

bool Planner::WorkersComplete() const {
  return std::all_of(job().roles.begin(), job().roles.end(), [this](const spec::Role& role) {
    if (!spec::EndsJob(job(), role.name)) return true;
    const ChildJob* child = ChildOf(role.name);
    return child != nullptr && child->complete;
  });
}

std::optional<Time> Planner::OldPodsUntil() const {
  std::optional<Time> until;
  for (const ChildPod& pod : observed_.pods) {
    if (pod.attempt == next_.attempt || pod.ended()) continue;
    // Not yet being deleted: its Job is gone, and the garbage collector comes.
    const Time limit = pod.delete_by.value_or(now_) + settings_.terminating_timeout;
    if (limit > now_) until = std::max(until.value_or(limit), limit);
  }
  return until;
}

// Scheduled has one of these reasons until the attempt's children are seen, and then never again.
bool Planner::BeganThisAttempt() const {
  const Condition* scheduled = old_.Find(kScheduled);
  if (scheduled == nullptr) return false;
  for (const char* reason :
       {"NewAttempt", "ScheduleTimeout", "SuspendedBySpec", "NameTaken", "GangUnavailable", "Forbidden"}) {
    if (scheduled->reason == reason) return false;
  }
  return true;
}

void Planner::LookAt(Time time) {
  const seconds in = std::max(time - now_, seconds(1));
  plan_.look_again = std::min(plan_.look_again.value_or(in), in);
}

void Planner::FinishJob(bool succeeded, std::string reason, std::string message) {
  next_.phase = succeeded ? Phase::kSucceeded : Phase::kFailed;
  next_.completion_time = now_;
  if (next_.Find(kRunning) != nullptr) next_.Set(kRunning, false, reason, message, now_);
  if (next_.Is(kRestarting)) next_.Set(kRestarting, false, reason, "", now_);
  if (succeeded && next_.progress && next_.progress->total_steps) {
    // The last report came before the last step.
    next_.progress->step = *next_.progress->total_steps;
    next_.progress->percentage = 100;
    next_.progress->remaining_seconds = 0;
  }
  Tell(!succeeded, reason, message);
  next_.Set(succeeded ? kComplete : kFailed, true, std::move(reason), std::move(message), now_);
}

void Planner::NewAttempt(bool counts, std::string reason, std::string message) {
  next_.attempt += 1;
  if (counts) next_.restarts += 1;
  next_.phase = Phase::kRestarting;
  next_.replicas.active = next_.replicas.ready = 0;
  const std::string scheduled = reason == "ScheduleTimeout" ? reason : "NewAttempt";
  next_.Set(kScheduled, false, scheduled, message, now_);
  for (Condition& condition : next_.conditions) {
    // The wait after a schedule timeout counts from here, whatever it was before.
    if (condition.type == kScheduled) condition.last_transition = now_;
  }
  if (next_.Find(kRunning) != nullptr) next_.Set(kRunning, false, reason, message, now_);
  next_.Set(kRestarting, true, reason, message, now_);
  Tell(true, std::move(reason), message + "; attempt " + std::to_string(next_.attempt) + " begins");
}

void Planner::Stop(const ChildJob& child) {
  // Kueue alone says whether a Job of its queues is suspended.
  if (queued()) {
    plan_.actions.push_back(DeleteJob{child.name, child.uid});
  } else if (!child.suspended) {
    plan_.actions.push_back(SuspendJob{child.name, child.uid, true});
  }
}

void Planner::DropChildren(const std::function<bool(const ChildJob&)>& which) {
  for (const ChildJob& child : observed_.jobs) {
    if (!child.deleting && which(child)) plan_.actions.push_back(DeleteJob{child.name, child.uid});
  }
}

Plan Planner::Done() {
  bool changed = next_ != old_;
  if (changed && plan_.progress_only && observed_.last_progress_write) {
    const Time allowed = *observed_.last_progress_write + settings_.progress_interval;
    if (allowed > now_) {
      changed = false;
      LookAt(allowed);
    }
  }
  if (changed) plan_.status = std::move(next_);
  return std::move(plan_);
}

Plan Planner::Make() {
  if (observed_.job.deleting) return {};  // the garbage collector takes the children along
  if (CleanUpFinished()) return Done();
  if (Refuse()) return Done();
  next_.replicas.desired = spec::ReplicasOf(job());
  if (Deadline() || Suspend() || SpecChanged() || ChildrenGone() || Ended() || EndedWithFewer() ||
      LostPods() || ScheduleTimeout()) {
    return Done();
  }
  DropChildren([this](const ChildJob& child) { return child.attempt != next_.attempt; });
  if (StartAttempt()) return Done();
  Report();
  return Done();
}

// What is finished stays so, whatever becomes of its children.
bool Planner::CleanUpFinished() {
  if (!old_.finished()) return false;
  next_ = old_;
  const spec::RunPolicy policy = manifest_.job ? manifest_.job->run_policy : spec::RunPolicy();
  if (policy.ttl_after_finished) {
    const Time due = old_.completion_time.value_or(now_) + *policy.ttl_after_finished;
    if (due <= now_) {
      plan_.actions.push_back(DeleteTrainingJob{});
      return true;
    }
    LookAt(due);
  }
  for (const ChildJob& child : observed_.jobs) {
    if (child.deleting) continue;
    const bool old = child.attempt != next_.attempt;
    if (policy.clean_pod_policy == spec::CleanPodPolicy::kAll || (old && !child.over())) {
      plan_.actions.push_back(DeleteJob{child.name, child.uid});
    } else if (!child.over()) {
      Stop(child);  // its pods end; those that have ended stay, with their logs
    }
  }
  return true;
}

bool Planner::Refuse() {
  if (manifest_.job) return false;
  if (old_.Is(kSuspended)) {
    // A slip of the pen while the job is held back; it can be mended.
    const Condition* told = old_.Find(kSuspended);
    if (told->reason != manifest_.reason) Tell(true, manifest_.reason, manifest_.invalid);
    next_.Set(kSuspended, true, manifest_.reason, manifest_.invalid, now_);
    return true;
  }
  FinishJob(false, manifest_.reason, manifest_.invalid);
  return true;
}

bool Planner::Deadline() {
  const auto& deadline = job().run_policy.active_deadline;
  if (!deadline || !old_.start_time || job().suspend) return false;
  const Time due = *old_.start_time + *deadline;
  if (due > now_) {
    LookAt(due);
    return false;
  }
  if (WorkersComplete()) return false;
  FinishJob(false, "DeadlineExceeded",
            "runPolicy.activeDeadlineSeconds (" + std::to_string(deadline->count()) + ") are over");
  return true;
}

// Of jobs without a queue this is the child's field of the same name.
bool Planner::Suspend() {
  if (!job().suspend) return false;
  bool over = false;
  for (const ChildJob& child : observed_.jobs) over = over || (current(child) && child.over());
  if (over) return false;  // too late
  bool had_queued = false;
  for (const ChildJob& child : observed_.jobs) {
    if (child.deleting) continue;
    had_queued = had_queued || (queued() && current(child));
    if (child.attempt == next_.attempt && !queued()) Stop(child);
    if (child.attempt != next_.attempt) plan_.actions.push_back(DeleteJob{child.name, child.uid});
  }
  // A queued child gives its quota back by going away; its name is never used again.
  if (had_queued) next_.attempt += 1;
  if (!old_.Is(kSuspended)) Tell(false, "Suspended", "spec.suspend is set; the pods are given up");
  next_.phase = Phase::kSuspended;
  next_.start_time.reset();
  next_.replicas = {.desired = next_.replicas.desired};
  next_.Set(kSuspended, true, "SuspendedBySpec", "spec.suspend is set", now_);
  if (next_.Find(kRunning) != nullptr)
    next_.Set(kRunning, false, "SuspendedBySpec", "spec.suspend is set", now_);
  if (next_.Find(kScheduled) != nullptr) {
    next_.Set(kScheduled, false, "SuspendedBySpec", "spec.suspend is set", now_);
  }
  if (next_.Is(kRestarting)) next_.Set(kRestarting, false, "SuspendedBySpec", "", now_);
  return true;
}

// While the job was suspended: its pods would be others now, and a Job's pods cannot be changed.
bool Planner::SpecChanged() {
  const auto table = [](const std::string& pods) { return pods.substr(0, pods.find('-')); };
  bool changed = false;
  for (const ChildJob& child : observed_.jobs) {
    if (!current(child) || child.over() || child.pods.empty() || child.pods == manifest_.pods) continue;
    // Of another version's table nothing is known; new pods do no harm where there are none.
    changed = changed || table(child.pods) == table(manifest_.pods) || (child.suspended && !queued());
  }
  if (!changed) return false;
  const std::string message = "the pods are made anew, as the spec now says";
  next_.attempt += 1;
  next_.phase = Phase::kPending;
  next_.start_time.reset();
  next_.replicas = {.desired = next_.replicas.desired};
  next_.Set(kScheduled, false, "NewAttempt", message, now_);
  if (next_.Find(kRunning) != nullptr) next_.Set(kRunning, false, "SpecChanged", message, now_);
  if (next_.Is(kRestarting)) next_.Set(kRestarting, false, "SpecChanged", "", now_);
  if (next_.Is(kSuspended)) next_.Set(kSuspended, false, "Resumed", "", now_);
  Tell(false, "SpecChanged", message);
  return true;
}

// Its children were seen in this attempt, and somebody deleted one.
bool Planner::ChildrenGone() {
  if (!BeganThisAttempt()) return false;
  for (const spec::Role& role : job().roles) {
    if (ChildOf(role.name) != nullptr) continue;
    const std::string message =
        "the Job " + ChildJobName(observed_.job.name, role.name, next_.attempt) + " was deleted";
    MayRestart() ? NewAttempt(true, "JobDeleted", message) : FinishJob(false, "JobDeleted", message);
    return true;
  }
  return false;
}

bool Planner::Ended() {
  int complete = 0;
  for (const spec::Role& role : job().roles) {
    const ChildJob* child = ChildOf(role.name);
    if (child == nullptr) return false;
    complete += child->complete ? 1 : 0;
    if (!child->failing) continue;
    // What the agents agreed on is the job's end; that its last pod was lost is not.
    bool decided = false;
    for (const ChildPod* pod : CurrentPods()) {
      if (pod->phase != PodPhase::kFailed) continue;
      const bool verdict = ReadVerdict(pod->exit_message).has_value();
      if (!decided) TakeFailure(*pod);
      decided = decided || verdict;
    }
    CountPods();
    // The news of the pod comes another way than that of its Job, and may come later.
    if (!decided && child->failure_reason == "PodFailurePolicy" && child->failed_at + seconds(5) > now_) {
      LookAt(child->failed_at + seconds(5));
      return true;
    }
    if (!decided && child->failure_reason == "BackoffLimitExceeded" && MayRestart()) {
      NewAttempt(true, "PodsLost", "too many pods of " + child->name + " were lost");
      return true;
    }
    const std::string why = decided ? next_.last_failure->message : child->failure_message;
    FinishJob(false, decided ? "JobFailed" : child->failure_reason, why);
    return true;
  }
  if (!WorkersComplete()) return false;
  if (complete < static_cast<int>(job().roles.size())) {
    // Their agents end them, and then themselves.
    std::optional<Time> last;
    for (const ChildPod* pod : CurrentPods()) {
      if (spec::EndsJob(job(), pod->role) && pod->ended_at)
        last = std::max(last.value_or(*pod->ended_at), *pod->ended_at);
    }
    if (last && *last + kStragglers > now_) {
      LookAt(*last + kStragglers);
      return true;
    }
  }
  CountPods();
  TakeProgress();
  FinishJob(true, "JobSucceeded", "all replicas have ended well");
  return true;
}

// The Job waits for every index; the job's own end is that of the replicas it went on with.
bool Planner::EndedWithFewer() {
  if (!elastic() || AnyChild() == nullptr) return false;
  const std::set<int> done = Replicas([](const ChildPod& pod) { return pod.phase == PodPhase::kSucceeded; });
  if (!Enough(done)) return false;
  // All who are in the job end with replica 0; who came too late for it would wait for it long.
  bool some_run = false;
  std::optional<Time> over;
  for (const ChildPod* pod : CurrentPods()) {
    some_run = some_run || (pod->phase == PodPhase::kRunning && !pod->delete_by);
    if (ReplicaOf(*pod) == 0 && pod->phase == PodPhase::kSucceeded && pod->ended_at) {
      over = *pod->ended_at + kStragglers;
    }
  }
  if (some_run && (!over || *over > now_)) {
    if (over) LookAt(*over);
    return false;
  }
  CountPods();
  TakeProgress();
  FinishJob(true, "JobSucceeded",
            std::to_string(done.size()) + " of " + std::to_string(next_.replicas.desired) +
                " replicas have ended well");
  return true;
}

// The Job controller would replace a lost pod only later and later, and one on a dead node never.
bool Planner::LostPods() {
  std::string reason;
  std::string message;
  bool counts = true;
  // The others go on, and grow again when it comes back.
  if (elastic() && Enough(Running())) return false;
  for (const spec::Role& role : job().roles) {
    const ChildJob* child = ChildOf(role.name);
    // Started again alone, each is its Job's to replace.
    if (child == nullptr || child->suspended || GoesOnAlone()) continue;
    if (child->failed >= settings_.losses_per_attempt) {
      reason = "PodsLost";
      message = std::to_string(child->failed) + " pods of " + child->name + " were lost";
    }
  }
  for (const ChildPod* pod : CurrentPods()) {
    if (!pod->delete_by || pod->ended()) continue;
    const Time limit = *pod->delete_by + settings_.terminating_timeout;
    if (limit > now_) {
      LookAt(limit);
    } else if (reason.empty()) {
      reason = "PodStuck";
      message = "the pod " + pod->name + " does not end; its node may be lost";
      counts = !pod->disrupted;  // a node that is lost is no failure of the job's
    }
  }
  if (reason.empty()) return false;
  for (const ChildPod* pod : CurrentPods()) {
    if (pod->phase == PodPhase::kFailed && !pod->disrupted) TakeFailure(*pod);
  }
  if (counts && !MayRestart()) {
    FinishJob(false, reason, message + "; no restart is left");
  } else {
    NewAttempt(counts, reason, message);
  }
  return true;
}

// Part of the pods hold what another job's part waits for.
bool Planner::ScheduleTimeout() {
  const auto& timeout = job().run_policy.schedule_timeout;
  if (!timeout) return false;
  const ChildJob* child = AnyChild();
  if (child == nullptr || child->suspended) return false;
  int scheduled = 0;
  int waiting = 0;
  std::string why;
  for (const ChildPod* pod : CurrentPods()) {
    if (pod->ended()) continue;
    pod->scheduled ? ++scheduled : ++waiting;
    if (!pod->unschedulable.empty()) why = pod->unschedulable;
  }
  if (waiting == 0 || scheduled == 0) return false;
  if (Enough(Replicas([](const ChildPod& pod) { return pod.scheduled; }))) return false;
  // Since when: a job that ran and lost a node has the timeout from then on.
  Time since = child->started.value_or(child->created);
  if (const Condition* condition = old_.Find(kScheduled); condition != nullptr && !condition->status) {
    since = std::max(since, condition->last_transition);
  } else if (old_.Is(kScheduled)) {
    since = now_;
  }
  if (since + *timeout > now_) {
    LookAt(since + *timeout);
    return false;
  }
  NewAttempt(false, "ScheduleTimeout",
             "only " + std::to_string(scheduled) + " of " + std::to_string(scheduled + waiting) +
                 " pods found a place within " + std::to_string(timeout->count()) + " s; they give it back" +
                 (why.empty() ? "" : ": " + why));
  return true;
}

// True when there is nothing to report yet.
bool Planner::StartAttempt() {
  const int replicas = next_.replicas.desired;
  bool missing = false;
  for (const spec::Role& role : job().roles) missing = missing || ChildOf(role.name) == nullptr;
  if (!missing) return false;

  if (!next_.phase || next_.phase == Phase::kSuspended) {
    next_.phase = Phase::kPending;
    if (next_.Is(kSuspended)) next_.Set(kSuspended, false, "Resumed", "", now_);
  }
  if (!observed_.refused.empty()) {
    FinishJob(false, "InvalidTemplate", observed_.refused);
    return true;
  }
  if (const auto& blocked = observed_.blocked) {
    const Condition* told = old_.Find(kScheduled);
    if (told == nullptr || told->reason != blocked->reason) Tell(true, blocked->reason, blocked->message);
    next_.Set(kScheduled, false, blocked->reason, blocked->message, now_);
    LookAt(now_ + seconds(30));
    return true;
  }
  if (const auto until = OldPodsUntil()) {
    LookAt(std::min(*until, now_ + seconds(10)));
    return true;
  }
  if (const Condition* scheduled = old_.Find(kScheduled);
      scheduled != nullptr && scheduled->reason == "ScheduleTimeout") {
    // Spread by what differs between the jobs that stand in one another's way.
    const size_t spread = std::hash<std::string>()(observed_.job.uid + std::to_string(next_.attempt)) % 4;
    const Time due = scheduled->last_transition + settings_.schedule_backoff * static_cast<int>(1 + spread);
    if (due > now_) {
      LookAt(due);
      return true;
    }
  }
  if (replicas > 1) plan_.actions.push_back(CreateSecret{});
  if (HasGang(job())) {
    if (next_.attempt > 0) plan_.actions.push_back(DeleteGang{next_.attempt - 1});
    plan_.actions.push_back(CreateGang{next_.attempt});
  }
  for (const spec::Role& role : job().roles) {
    if (ChildOf(role.name) != nullptr) continue;
    const auto service = [&](const ChildService& each) {
      return each.name == ServiceName(observed_.job.name, role.name);
    };
    if (replicas > 1 && std::none_of(observed_.services.begin(), observed_.services.end(), service)) {
      plan_.actions.push_back(CreateService{role.name});
    }
    plan_.actions.push_back(CreateJob{
        .role = role.name, .attempt = next_.attempt, .restarts = next_.restarts, .suspended = queued()});
  }
  return true;
}

Plan MakePlan(const Observed& observed, const Manifest& manifest, const Settings& settings, Time now) {
  return Planner(observed, manifest, settings, now).Make();
}

}  // namespace lockstep::op
