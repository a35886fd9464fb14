#include <algorithm>
#include <set>
#include <utility>

#include "common/cut_text.h"
#include "launcher/operator/planner_state.h"

namespace lockstep::op {

void Planner::CountPods() {
  ReplicaCounts counts;
  counts.desired = next_.replicas.desired;
  for (const spec::Role& role : job().roles) {
    if (const ChildJob* child = ChildOf(role.name)) {
      counts.active += child->active;
      counts.ready += child->ready;
      counts.succeeded += child->succeeded;
      counts.failed += child->failed;
    }
  }
  next_.replicas = counts;
}

void Planner::TakeProgress() {
  if (!observed_.report) return;
  const AgentReport& report = *observed_.report;
  const auto pods = CurrentPods();
  const auto asked = [&](const ChildPod* pod) { return pod->uid == report.pod_uid; };
  if (std::none_of(pods.begin(), pods.end(), asked)) return;  // of an earlier attempt
  if (report.progress) next_.progress = report.progress;
  const ChildJob* child = AnyChild();
  if (child != nullptr) next_.restarts = std::max(next_.restarts, child->restarts_before + report.restarts);
  if (report.last_failure) next_.last_failure = report.last_failure;
}

void Planner::TakeFailure(const ChildPod& pod) {
  LastFailure failure{.replica = ReplicaOf(pod), .exit_code = pod.exit_code, .reason = pod.exit_reason};
  if (const auto verdict = ReadVerdict(pod.exit_message)) {
    failure = {.replica = verdict->replica,
               .process = verdict->process,
               .exit_code = verdict->exit_code,
               .reason = verdict->reason,
               .message = verdict->message};
  } else {
    failure.message = "the pod " + pod.name + " failed";
    if (!pod.exit_reason.empty()) failure.message += ": " + pod.exit_reason;
    if (!pod.exit_message.empty()) failure.message += ": " + CutText(pod.exit_message, 1024);
  }
  if (job().roles.size() > 1) {
    const auto seat = spec::SeatOf(job(), failure.replica);
    if (static_cast<size_t>(seat.role) < job().roles.size()) {
      failure.role = job().roles[static_cast<size_t>(seat.role)].name;
    }
  }
  next_.last_failure = std::move(failure);
}

std::set<int> Planner::Placed() const {
  return Replicas([](const ChildPod& pod) {
    return pod.phase == PodPhase::kSucceeded || (pod.scheduled && pod.phase != PodPhase::kFailed);
  });
}

Phase Planner::PhaseOfPods() {
  const std::set<int> running = Running();
  const bool ran = old_.phase == Phase::kRunning || old_.phase == Phase::kRestarting;
  // Whether a job that begins waits for all is for its agents to say.
  const bool all = static_cast<int>(running.size()) >= next_.replicas.desired;
  const bool goes_on = Enough(running) && (ran || (observed_.report && observed_.report->progress));
  if (all || goes_on) {
    return observed_.report && observed_.report->restarting ? Phase::kRestarting : Phase::kRunning;
  }
  if (ran) return Phase::kRestarting;
  return Enough(Placed()) ? Phase::kScheduled : Phase::kPending;
}

void Planner::Conditions(Phase phase) {
  if (next_.Is(kSuspended)) {
    Tell(false, "Resumed", "the job goes on");
    next_.Set(kSuspended, false, "Resumed", "", now_);
  }
  std::string why;
  std::string reason = "PodsPending";
  for (const ChildPod* pod : CurrentPods()) {
    if (pod->delete_by || pod->phase == PodPhase::kFailed) continue;
    if (!pod->unschedulable.empty()) reason = "Unschedulable", why = pod->unschedulable;
  }
  const std::set<int> placed = Placed();
  const std::string desired = std::to_string(next_.replicas.desired);
  if (static_cast<int>(placed.size()) >= next_.replicas.desired) {
    next_.Set(kScheduled, true, "PodsScheduled", "every pod has a node", now_);
  } else {
    const bool enough = Enough(placed);
    next_.Set(kScheduled, enough, enough ? "FewerReplicas" : reason,
              std::to_string(placed.size()) + " of " + desired + " pods have a node" +
                  (why.empty() ? "" : ": " + why),
              now_);
  }
  if (phase == Phase::kRunning) {
    const size_t running = Running().size();
    const bool all = static_cast<int>(running) >= next_.replicas.desired;
    const std::string message =
        all ? "all replicas run" : std::to_string(running) + " of " + desired + " replicas run";
    const Condition* before = old_.Find(kRunning);
    if (!old_.Is(kRunning)) {
      const bool first =
          before == nullptr || before->reason == "PodsStarting" || before->reason == "PodsWaiting";
      Tell(false, first ? "Started" : "Recovered", message);
    } else if (before->message != message) {
      Tell(!all, all ? "Grown" : "Shrunk", message);
    }
    next_.Set(kRunning, true, all ? "PodsRunning" : "FewerReplicas", message, now_);
    if (next_.Is(kRestarting)) next_.Set(kRestarting, false, "Recovered", "", now_);
    return;
  }
  // What keeps the pods from starting, in the kubelet's words.
  std::string waiting;
  for (const ChildPod* pod : CurrentPods()) {
    if (!pod->waiting.empty() && pod->waiting != "ContainerCreating" && pod->waiting != "PodInitializing") {
      waiting =
          pod->name + ": " + pod->waiting + (pod->waiting_message.empty() ? "" : ": " + pod->waiting_message);
    }
  }
  if (phase == Phase::kRestarting) {
    if (!old_.Is(kRestarting)) {
      next_.Set(kRestarting, true, "ReplicaRestarting", "a replica is started again", now_);
    }
    if (next_.Find(kRunning) != nullptr) next_.Set(kRunning, false, "ReplicaRestarting", waiting, now_);
  } else {
    next_.Set(kRunning, false, waiting.empty() ? "PodsStarting" : "PodsWaiting", waiting, now_);
  }
}

void Planner::Report() {
  CountPods();
  const ChildJob* child = AnyChild();
  // Suspended by whoever owns the field: Kueue, which queues a job first and may evict it later. No failure.
  if (child->suspended) {
    if (!queued()) {  // resumed; the rest when its pods are there
      for (const ChildJob& each : observed_.jobs) {
        if (current(each) && each.suspended) plan_.actions.push_back(SuspendJob{each.name, each.uid, false});
      }
      return;
    }
    next_.phase = Phase::kSuspended;
    next_.start_time.reset();
    const bool ran = old_.Find(kRunning) != nullptr;
    next_.Set(kSuspended, true, ran ? "Evicted" : "Queued",
              "waits for Kueue in the queue " + observed_.job.queue, now_);
    next_.Set(kScheduled, false, "Queued", "", now_);
    if (ran) next_.Set(kRunning, false, "Evicted", "", now_);
    if (next_.Is(kRestarting)) next_.Set(kRestarting, false, "Queued", "", now_);
    return;
  }
  if (!next_.start_time) {
    next_.start_time = child->started.value_or(now_);
    if (const auto& deadline = job().run_policy.active_deadline) LookAt(*next_.start_time + *deadline);
  }
  const Phase phase = PhaseOfPods();
  next_.phase = phase;
  Conditions(phase);
  // A status that differs in nothing but what the agent reports can wait.
  JobStatus without_report = next_;
  TakeProgress();
  without_report.observed_generation = next_.observed_generation;
  plan_.progress_only = without_report == old_ && next_ != old_;
}

}  // namespace lockstep::op
