#include "launcher/import/kubeflow.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "launcher/spec/enums.h"
#include "launcher/spec/quote.h"

namespace lockstep::importer {

namespace {

void ReadRestartPolicy(const Field& policy, RestartPolicies& restarts) {
  const std::string text = policy.Text().value_or("");
  if (text == "Never") {
    restarts.never.push_back(policy);
  } else if (text == "OnFailure" || text == "Always") {
    restarts.again.push_back(policy);
    if (text == "Always") policy.Say("as OnFailure: a process that ends well is done");
  } else if (text == "ExitCode") {
    restarts.by_exit_code.push_back(policy);
  } else if (policy.present()) {
    policy.LeaveOut(spec::Quoted(text) + " is not one of Never, OnFailure, Always, ExitCode; left out");
  }
}

void SetRestarts(const RestartPolicies& restarts, const Field& backoff_limit, spec::RunPolicy& run_policy) {
  const bool again = !restarts.again.empty() || !restarts.by_exit_code.empty();
  const std::optional<int> limit = ReadCount(backoff_limit, 0);
  if (!restarts.by_exit_code.empty()) {
    restarts.by_exit_code.front().Say("runPolicy.exitCodes: 1 to 127 end the job, of whatever role");
    // "1-127: permanent error", and a rule has at most 64 codes.
    for (const auto& [first, count] : {std::pair(1, size_t{64}), std::pair(65, size_t{63})}) {
      spec::ExitCodeRule rule{.action = spec::ExitAction::kFail};
      rule.codes.resize(count);
      std::iota(rule.codes.begin(), rule.codes.end(), first);
      run_policy.exit_codes.push_back(std::move(rule));
    }
  }
  if (!restarts.never.empty() && !again && !restarts.most) {
    run_policy.max_restarts = 0;
    if (limit.value_or(0) > 0) backoff_limit.Say("not needed: restartPolicy is Never, and so maxRestarts 0");
    return;
  }
  for (const Field& never : restarts.never) {
    never.Say("left out: restarts are the whole job's, and other roles have some; maxRestarts: 0 is none",
              true);
  }
  if (restarts.most || limit) {
    run_policy.max_restarts = restarts.most ? *restarts.most : *limit;
    if (restarts.most && limit) backoff_limit.Say("left out: elasticPolicy.maxRestarts is the limit", true);
    return;
  }
  for (const Field& policy : restarts.again) {
    policy.Say("without a backoffLimit there is no limit there; here runPolicy.maxRestarts is " +
               std::to_string(run_policy.max_restarts));
  }
}

// Which group it was is a setting of the other operator's.
void ChooseGang(const Field& policy, const std::vector<Draft>& drafts, spec::RunPolicy& run_policy) {
  run_policy.gang = spec::GangScheduler::kVolcano;
  for (const Draft& draft : drafts) {
    const auto scheduler = draft.pod.spec.find("schedulerName");
    if (scheduler == draft.pod.spec.end() || !scheduler->is_string()) continue;
    if (scheduler->get<std::string>() == "volcano") return;
    run_policy.gang = spec::GangScheduler::kCoscheduling;
  }
  policy.Say(
      "runPolicy.gang: " + std::string(spec::Name(run_policy.gang)) +
      ": which scheduler makes the group was a setting of the operator's; Volcano, Coscheduling and Workload "
      "are known");
}

void ReadSchedulingPolicy(const Field& policy, std::vector<Draft>& drafts, spec::RunPolicy& run_policy) {
  if (!policy.present()) return;
  ChooseGang(policy, drafts, run_policy);
  const int replicas = std::accumulate(drafts.begin(), drafts.end(), 0,
                                       [](int sum, const Draft& draft) { return sum + draft.replicas; });
  if (const Field least = policy["minAvailable"]; const std::optional<int> number = ReadCount(least, 0)) {
    if (*number < replicas) {
      least.Say("left out: the group is all " + std::to_string(replicas) +
                    " pods; with runPolicy.minReplicas it is fewer, and the job goes on with so few, too",
                true);
    } else {
      least.Say("not needed: the group is all pods");
    }
  }
  run_policy.schedule_timeout = ReadSeconds(policy["scheduleTimeoutSeconds"], 1);
  if (const Field queue = policy["queue"]; queue.present()) {
    queue.LeaveOut("left out: the group names no queue; Kueue's is the label kueue.x-k8s.io/queue-name");
  }
  if (const std::optional<std::string> priority = policy["priorityClass"].Text()) {
    for (Draft& draft : drafts) draft.pod.spec["priorityClassName"] = *priority;
    policy["priorityClass"].Say("priorityClassName of the pods");
  }
}

}  // namespace

std::optional<Draft> ReadReplicas(const Field& spec, std::string_view role, std::string_view container,
                                  RestartPolicies& restarts) {
  const Field replicas = spec["replicas"];
  const int count = ReadCount(replicas, 0).value_or(1);
  if (count == 0) {
    spec.LeaveOut("left out: it has no replicas");
    return std::nullopt;
  }
  ReadRestartPolicy(spec["restartPolicy"], restarts);
  return Draft{.role = std::string(role),
               .replicas = count,
               .pod = ReadPod(spec["template"], container),
               .where = spec};
}

void ReadRunPolicy(const Field& policy, const RestartPolicies& restarts, std::vector<Draft>& drafts,
                   spec::TrainingJob& job) {
  spec::RunPolicy& run_policy = job.run_policy;
  ReadCleanPodPolicy(policy["cleanPodPolicy"], run_policy);
  run_policy.ttl_after_finished = ReadSeconds(policy["ttlSecondsAfterFinished"], 0);
  run_policy.active_deadline = ReadSeconds(policy["activeDeadlineSeconds"], 1);
  SetRestarts(restarts, policy["backoffLimit"], run_policy);
  ReadSchedulingPolicy(policy["schedulingPolicy"], drafts, run_policy);
  job.suspend = policy["suspend"].Boolean().value_or(false);
}

void ReadCleanPodPolicy(const Field& policy, spec::RunPolicy& run_policy) {
  const std::optional<std::string> text = policy.Text();
  if (!text) return;
  const auto& names = spec::kNames<spec::CleanPodPolicy>;
  const auto found = std::find(names.begin(), names.end(), *text);
  if (found == names.end()) {
    policy.LeaveOut(spec::Quoted(*text) + " is not one of " + spec::Joined(names) + "; left out");
  } else {
    run_policy.clean_pod_policy = static_cast<spec::CleanPodPolicy>(found - names.begin());
  }
}

std::optional<std::chrono::seconds> ReadSeconds(const Field& field, int least) {
  const std::optional<int> seconds = ReadCount(field, least);
  return seconds ? std::optional(std::chrono::seconds(*seconds)) : std::nullopt;
}

}  // namespace lockstep::importer
