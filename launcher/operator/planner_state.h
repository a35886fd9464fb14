#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/operator/gang.h"
#include "launcher/operator/planner.h"
#include "launcher/spec/roles.h"

// For planner.cc and planner_report.cc only.
namespace lockstep::op {

// One call of MakePlan: planner.cc decides, planner_report.cc says in the status how things are.
class Planner {
 public:
  Planner(const Observed& observed, const Manifest& manifest, const Settings& settings, Time now)
      : observed_(observed),
        manifest_(manifest),
        settings_(settings),
        now_(now),
        old_(observed.job.status),
        next_(observed.job.status) {
    next_.observed_generation = observed.job.generation;
  }

  Plan Make();

 private:
  // Each returns true when it has decided everything.
  bool CleanUpFinished();
  bool Refuse();
  bool Deadline();
  bool Suspend();
  bool SpecChanged();
  bool StartAttempt();
  bool ChildrenGone();
  bool Ended();
  bool EndedWithFewer();
  bool LostPods();
  bool ScheduleTimeout();
  void Report();

  void FinishJob(bool succeeded, std::string reason, std::string message);
  void NewAttempt(bool counts, std::string reason, std::string message);
  bool MayRestart() const { return next_.restarts < job().run_policy.max_restarts; }
  void Stop(const ChildJob& child);
  void DropChildren(const std::function<bool(const ChildJob&)>& which);
  void CountPods();
  void TakeProgress();
  void TakeFailure(const ChildPod& pod);
  Phase PhaseOfPods();
  void Conditions(Phase phase);
  void LookAt(Time time);
  void Tell(bool warning, std::string reason, std::string message) {
    plan_.events.push_back({warning, std::move(reason), std::move(message)});
  }
  Plan Done();

  const spec::TrainingJob& job() const { return *manifest_.job; }
  bool queued() const { return !observed_.job.queue.empty(); }
  bool current(const ChildJob& child) const { return child.attempt == next_.attempt && !child.deleting; }
  // Of all roles, in the order of replicas.
  int ReplicaOf(const ChildPod& pod) const { return spec::FirstReplicaOf(job(), pod.role) + pod.index; }
  // The job is about these; the others end with them.
  bool WorkersComplete() const;
  // It has run, and goes on whoever is lost but replica 0 (spec/roles.h, RestartsAlone).
  bool GoesOnAlone() const;
  const ChildJob* ChildOf(const std::string& role) const;
  const ChildJob* AnyChild() const;
  std::vector<const ChildPod*> CurrentPods() const;
  // The replicas whose pods of this attempt are there to stay and are `in`.
  std::set<int> Replicas(const std::function<bool(const ChildPod&)>& in) const;
  std::set<int> Running() const;
  std::set<int> Placed() const;
  bool elastic() const { return NeededReplicas(job()) < next_.replicas.desired; }
  // For the job to go on. Replica 0, which has the store, is always waited for.
  bool Enough(const std::set<int>& indices) const;
  // The pods of an attempt that is over are still there, and may be for a while.
  std::optional<Time> OldPodsUntil() const;
  bool BeganThisAttempt() const;

  const Observed& observed_;
  const Manifest& manifest_;
  const Settings& settings_;
  const Time now_;
  const JobStatus& old_;
  JobStatus next_;
  Plan plan_;
};

}  // namespace lockstep::op
