#include <algorithm>
#include <set>
#include <utility>

#include "launcher/operator/planner_state.h"

namespace lockstep::op {

void Planner::CountPods() {
  ReplicaCounts counts;
  for (const spec::Role& role : job().roles) {
    counts.desired += role.replicas;
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

Phase Planner::PhaseOfPods() {
  int running = 0;
  int scheduled = 0;
  for (const ChildPod* pod : CurrentPods()) {
    if (pod->delete_by || pod->phase == PodPhase::kFailed) continue;
    running += pod->phase == PodPhase::kRunning || pod->phase == PodPhase::kSucceeded ? 1 : 0;
    scheduled += pod->scheduled || pod->phase == PodPhase::kSucceeded ? 1 : 0;
  }
  const bool ran = old_.phase == Phase::kRunning || old_.phase == Phase::kRestarting;
  if (running >= next_.replicas.desired) {
    return observed_.report && observed_.report->restarting ? Phase::kRestarting : Phase::kRunning;
  }
  if (ran) return Phase::kRestarting;
  return scheduled >= next_.replicas.desired ? Phase::kScheduled : Phase::kPending;
}

void Planner::Conditions(Phase phase) {
  if (next_.Is(kSuspended)) {
    Tell(false, "Resumed", "the job goes on");
    next_.Set(kSuspended, false, "Resumed", "", now_);
  }
  std::set<int> placed;
  std::string why;
  std::string reason = "PodsPending";
  for (const ChildPod* pod : CurrentPods()) {
    if (pod->delete_by || pod->phase == PodPhase::kFailed) continue;
    if (pod->scheduled || pod->ended()) placed.insert(pod->index);
    if (!pod->unschedulable.empty()) reason = "Unschedulable", why = pod->unschedulable;
  }
  const int desired = next_.replicas.desired;
  if (static_cast<int>(placed.size()) >= desired) {
    next_.Set(kScheduled, true, "PodsScheduled", "every pod has a node", now_);
  } else {
    next_.Set(kScheduled, false, reason,
              std::to_string(placed.size()) + " of " + std::to_string(desired) + " pods have a node" +
                  (why.empty() ? "" : ": " + why),
              now_);
  }
  if (phase == Phase::kRunning) {
    if (!old_.Is(kRunning)) {
      const Condition* before = old_.Find(kRunning);
      const bool first =
          before == nullptr || before->reason == "PodsStarting" || before->reason == "PodsWaiting";
      Tell(false, first ? "Started" : "Recovered", "all replicas run");
    }
    next_.Set(kRunning, true, "PodsRunning", "all replicas run", now_);
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
  progress_only_ = without_report == old_ && next_ != old_;
}

}  // namespace lockstep::op
