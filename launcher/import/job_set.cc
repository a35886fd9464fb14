#include "launcher/import/job_set.h"

#include <algorithm>
#include <string>
#include <utility>

#include "launcher/import/command_line.h"
#include "launcher/import/kinds.h"
#include "launcher/import/kubeflow.h"
#include "launcher/spec/quote.h"

namespace lockstep::importer {

namespace {

// batch/v1: FailJob for some exit codes is what runPolicy.exitCodes says; the rest is the operator's own.
void ReadPodFailurePolicy(const Field& policy, JobLimits& limits) {
  for (const Field& rule : policy["rules"].Items()) {
    const Field codes = rule["onExitCodes"];
    if (rule["action"].Peek() != "FailJob" || codes["operator"].Peek() != "In") continue;
    spec::ExitCodeRule fail{.action = spec::ExitAction::kFail};
    for (const Field& code : codes["values"].Items()) {
      if (const std::optional<int> number = ReadCount(code, 1)) fail.codes.push_back(*number);
    }
    if (fail.codes.empty()) continue;
    rule["action"].Text();
    codes["operator"].Text();
    if (codes["containerName"].present())
      codes["containerName"].Explain("not needed: runPolicy.exitCodes is about the job's processes");
    limits.exit_codes.push_back(std::move(fail));
  }
}

void ReadSuccessPolicy(const Field& policy) {
  if (!policy.present()) return;
  constexpr char kDone[] = "the job is done when all processes of worker and chief are";
  if (policy["operator"].Peek() == "All" && !policy["targetReplicatedJobs"].present()) {
    policy.Explain(std::string("not needed: ") + kDone);
  } else {
    policy.LeaveOut(std::string("left out: ") + kDone);
  }
}

void ReadNetwork(const Field& network) {
  for (const auto& [key, field] : network.Entries()) {
    if (key == "enableDNSHostnames" || key == "publishNotReadyAddresses") {
      field.Explain("not needed: pods of several replicas have names in DNS, ready or not");
    } else if (key == "subdomain") {
      field.LeaveOut(
          "left out: the operator names pods and their Service; MASTER_ADDR and LOCKSTEP_STORE_ADDRESS "
          "say where the others are");
    }
  }
}

}  // namespace

std::optional<Draft> ReadReplicatedJob(const Field& group, JobLimits& limits) {
  const std::string name = group["name"].Text().value_or("");
  const std::string_view role = RoleNamed(name);
  group["name"].Say("becomes the role " + std::string(role));
  const Field spec = group["template"]["spec"];
  const int jobs = ReadCount(group["replicas"], 0).value_or(1);
  const int pods = ReadCount(spec["parallelism"], 0).value_or(1);
  if (const std::optional<int> completions = ReadCount(spec["completions"], 0);
      completions.value_or(pods) != pods) {
    spec["completions"].Say("is not parallelism, " + std::to_string(pods) +
                                ": all replicas run at the same time, and "
                                "each once",
                            true);
  }
  if (const std::optional<std::string> mode = spec["completionMode"].Text(); mode && *mode != "Indexed") {
    spec["completionMode"].Say("Indexed: each replica has its number", true);
  }
  if (const std::optional<int> limit = ReadCount(spec["backoffLimit"], 0)) {
    limits.backoff_limit = std::max(limits.backoff_limit.value_or(0), *limit);
  }
  if (const auto deadline = ReadSeconds(spec["activeDeadlineSeconds"], 1)) {
    limits.active_deadline = std::min(limits.active_deadline.value_or(*deadline), *deadline);
  }
  ReadPodFailurePolicy(spec["podFailurePolicy"], limits);
  if (jobs == 0 || pods == 0) {
    group.LeaveOut("left out: it has no pods");
    return std::nullopt;
  }
  Draft draft{.role = std::string(role),
              .replicas = jobs * pods,
              .pod = ReadPod(spec["template"], ""),
              .where = group};
  if (draft.pod.tpus && jobs > 1) {
    group["replicas"].Say("a role is one slice of TPUs, and here there are " + std::to_string(jobs) +
                              ": set replicas to the machines of one",
                          true);
  }
  return draft;
}

std::optional<spec::TrainingJob> ReadJobSet(const Field& object) {
  spec::TrainingJob job;
  ReadObject(object, job);
  const Field spec = object["spec"];
  JobLimits limits;
  std::vector<Draft> drafts;
  for (const Field& group : spec["replicatedJobs"].Items()) {
    if (std::optional<Draft> draft = ReadReplicatedJob(group, limits)) drafts.push_back(std::move(*draft));
  }
  if (drafts.empty()) {
    spec["replicatedJobs"].LeaveOut("has no pods; left out");
    return std::nullopt;
  }
  const auto worker =
      std::find_if(drafts.begin(), drafts.end(), [](const Draft& draft) { return draft.role == "worker"; });
  const spec::Framework framework = GuessFramework((worker == drafts.end() ? drafts.front() : *worker).pod);
  for (Draft& draft : drafts) StartAsTorchrunDoes(std::nullopt, "1", draft);

  constexpr int kBackoffLimit = 6;  // batch/v1's
  const Field restarts = spec["failurePolicy"]["maxRestarts"];
  job.run_policy.max_restarts = ReadCount(restarts, 0).value_or(limits.backoff_limit.value_or(kBackoffLimit));
  if (!restarts.present() || limits.backoff_limit.value_or(0) > 0) {
    spec["replicatedJobs"].Say("runPolicy.maxRestarts: " + std::to_string(job.run_policy.max_restarts) +
                               ", from " + (restarts.present() ? "failurePolicy" : "the Jobs' backoffLimit") +
                               ": restarts are the whole job's, not one pod's");
  }
  job.run_policy.exit_codes = std::move(limits.exit_codes);
  job.run_policy.active_deadline = limits.active_deadline;
  job.run_policy.ttl_after_finished = ReadSeconds(spec["ttlSecondsAfterFinished"], 0);
  job.suspend = spec["suspend"].Boolean().value_or(false);
  ReadSuccessPolicy(spec["successPolicy"]);
  ReadNetwork(spec["network"]);
  if (const Field startup = spec["startupPolicy"]; startup["startupPolicyOrder"].Peek() == "AnyOrder") {
    startup.Explain("not needed: the roles start at the same time");
  } else if (startup.present()) {
    startup.LeaveOut("left out: the roles start at the same time, and the processes when all are there");
  }
  if (const Field coordinator = spec["coordinator"]; coordinator.present()) {
    coordinator.Explain("not needed: MASTER_ADDR is where rank 0 is, the first replica of the first role");
  }
  SetRoles(std::move(drafts), framework, job);
  return job;
}

}  // namespace lockstep::importer
