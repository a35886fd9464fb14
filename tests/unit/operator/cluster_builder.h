#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "launcher/operator/children.h"
#include "launcher/operator/names.h"
#include "launcher/operator/observe.h"
#include "launcher/operator/planner.h"

// A job of two replicas named "digits" and what a cluster makes of it, step by step.
namespace lockstep::op {

inline constexpr Time kCreated{std::chrono::seconds(1'800'000'000)};

inline std::string SpecOf(const std::string& more = "", int replicas = 2) {
  return R"({"replicas":)" + std::to_string(replicas) +
         R"(,"processesPerReplica":1,"devices":{"type":"CPU"},"trainer":{"model":{"layers":[{"type":"Dense","units":10}]}})" +
         (more.empty() ? "" : ",") + more + "}";
}

inline std::string PolicyOf(const std::string& fields) { return R"("runPolicy":{)" + fields + "}"; }

inline Observed NewJob(const std::string& spec = SpecOf()) {
  Observed observed;
  observed.job = {.space = "team",
                  .name = "digits",
                  .uid = "3f2c",
                  .resource_version = "1",
                  .generation = 1,
                  .created = kCreated,
                  .spec = spec};
  return observed;
}

inline ChildJob RunningChild(int attempt = 0, int restarts_before = 0, const std::string& role = "worker") {
  return {.name = ChildJobName("digits", role, attempt),
          .uid = "job-" + std::to_string(attempt),
          .role = role,
          .attempt = attempt,
          .restarts_before = restarts_before,
          .created = kCreated,
          .started = kCreated,
          .active = 2};
}

inline ChildPod RunningPod(int index, int attempt = 0, const std::string& role = "worker") {
  const std::string name = ChildJobName("digits", role, attempt) + "-" + std::to_string(index) + "-x7z2p";
  return {.name = name,
          .uid = "pod-" + name,
          .job_uid = "job-" + std::to_string(attempt),
          .role = role,
          .attempt = attempt,
          .index = index,
          .phase = PodPhase::kRunning,
          .scheduled = true,
          .address = "10.0.0." + std::to_string(index + 1)};
}

inline ChildPod PendingPod(int index, int attempt = 0) {
  ChildPod pod = RunningPod(index, attempt);
  pod.phase = PodPhase::kPending;
  pod.scheduled = false;
  pod.unschedulable = "0/2 nodes are available";
  return pod;
}

inline Plan PlanAt(const Observed& observed, std::chrono::seconds since_created = std::chrono::seconds(0),
                   const Settings& settings = {}) {
  return MakePlan(observed, ReadJobManifest(observed.job, {}), settings, kCreated + since_created);
}

// As the API server has it once the plan's status is written.
inline Plan Carry(Observed& observed, std::chrono::seconds since_created = std::chrono::seconds(0)) {
  Plan plan = PlanAt(observed, since_created);
  if (plan.status) observed.job.status = *plan.status;
  return plan;
}

// A job that runs.
inline Observed RunningJob(const std::string& spec = SpecOf()) {
  Observed observed = NewJob(spec);
  Carry(observed);
  observed.services = {{"digits-worker", "service"}};
  observed.jobs = {RunningChild()};
  observed.pods = {RunningPod(0), RunningPod(1)};
  Carry(observed);
  return observed;
}

}  // namespace lockstep::op
