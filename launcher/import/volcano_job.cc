#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>

#include "launcher/import/kinds.h"
#include "launcher/import/kubeflow.h"
#include "launcher/import/mpi.h"
#include "launcher/spec/quote.h"

namespace lockstep::importer {

namespace {

constexpr int kMaxRetry = 3;  // Volcano's

// What is to happen after an event or an exit code (batch.volcano.sh, LifecyclePolicy).
void ReadPolicy(const Field& policy, spec::RunPolicy& run_policy) {
  const std::string_view event = policy["event"].Peek();
  const std::string_view action = policy["action"].Peek();
  const bool ends = action == "AbortJob" || action == "TerminateJob";
  if (policy["exitCode"].present() && (ends || action == "RestartJob")) {
    const std::optional<int> code = ReadCount(policy["exitCode"], 1);
    policy["action"].Text();
    if (!code) return;
    run_policy.exit_codes.push_back(
        {.codes = {*code}, .action = ends ? spec::ExitAction::kFail : spec::ExitAction::kRestart});
  } else if (action == "RestartJob" && (event == "PodFailed" || event == "PodEvicted")) {
    policy.Explain("not needed: Lockstep replaces the pod, and its processes start again together");
  } else if (action == "CompleteJob" && event == "TaskCompleted") {
    policy.Explain("not needed: the job is done when all processes of worker and chief are");
  } else if (ends && event == "PodFailed") {
    policy.Explain("runPolicy.maxRestarts: 0");
    run_policy.max_restarts = 0;
  } else {
    policy.LeaveOut("left out; what ends or restarts a job is said by runPolicy.maxRestarts and exitCodes");
  }
}

void ReadPlugins(const Field& plugins) {
  for (const auto& [name, field] : plugins.Entries()) {
    if (name == "pytorch" || name == "tensorflow" || name == "mpi") {
      field.Explain("program.framework; Lockstep sets the variables and finds the peers itself");
    } else if (name == "ssh") {
      field.Explain("not needed: Lockstep starts the processes without ssh");
    } else if (name == "svc" || name == "env") {
      field.LeaveOut(
          "left out: there are no VC_* variables and no /etc/volcano/*.host; a program finds the others by "
          "MASTER_ADDR, RANK and WORLD_SIZE or by its framework's variables (docs/contract.md)");
    } else {
      field.LeaveOut("left out: a plugin of Volcano's");
    }
  }
}

// A claim that is mounted in every pod.
void ReadVolumes(const Field& volumes, std::vector<Draft>& drafts) {
  const std::vector<Field> all = volumes.Items();
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i]["volumeClaimName"].present()) {
      all[i].LeaveOut("left out: nobody makes the claim; make it, and name it by volumeClaimName");
      continue;
    }
    const std::string name = "volume-" + std::to_string(i);
    const std::string claim = all[i]["volumeClaimName"].Text().value_or("");
    const std::string path = all[i]["mountPath"].Text().value_or("");
    for (Draft& draft : drafts) {
      draft.pod.spec["volumes"].push_back(
          {{"name", name}, {"persistentVolumeClaim", {{"claimName", claim}}}});
      draft.pod.container["volumeMounts"].push_back({{"name", name}, {"mountPath", path}});
    }
  }
}

std::optional<Draft> ReadTask(const Field& task, spec::RunPolicy& run_policy) {
  const std::string name = task["name"].Text().value_or("");
  const std::string_view role = RoleNamed(name);
  task["name"].Say("becomes the role " + std::string(role));
  const int replicas = ReadCount(task["replicas"], 0).value_or(1);
  if (replicas == 0) {
    task.LeaveOut("left out: it has no replicas");
    return std::nullopt;
  }
  for (const Field& policy : task["policies"].Items()) ReadPolicy(policy, run_policy);
  if (const Field least = task["minAvailable"]; ReadCount(least, 0).value_or(replicas) < replicas) {
    least.Say("left out: all replicas are waited for", true);
  }
  return Draft{
      .role = std::string(role), .replicas = replicas, .pod = ReadPod(task["template"], ""), .where = task};
}

void ReadGang(const Field& spec, std::vector<Draft>& drafts, spec::RunPolicy& run_policy) {
  run_policy.gang = spec::GangScheduler::kVolcano;
  if (const std::string scheduler = spec["schedulerName"].Text().value_or("volcano");
      scheduler != "volcano") {
    spec["schedulerName"].Say("no group: runPolicy.gang has Volcano's, Coscheduling's and Kubernetes' own");
    run_policy.gang = spec::GangScheduler::kNone;
    for (Draft& draft : drafts) draft.pod.spec["schedulerName"] = scheduler;
  }
  const int pods = std::accumulate(drafts.begin(), drafts.end(), 0,
                                   [](int sum, const Draft& draft) { return sum + draft.replicas; });
  if (const Field least = spec["minAvailable"]; const std::optional<int> number = ReadCount(least, 0)) {
    if (*number < pods) {
      least.Say("left out: the group is all " + std::to_string(pods) +
                    " pods; with runPolicy.minReplicas it is fewer, and the job goes on with so few, too",
                true);
    } else {
      least.Say("not needed: the group is all pods");
    }
  }
  if (const Field queue = spec["queue"]; queue.Peek() == "default") {
    queue.Explain("not needed: the group is in the queue default");
  } else if (queue.present()) {
    queue.LeaveOut("left out: the group names no queue, and is in default");
  }
  if (const std::optional<std::string> priority = spec["priorityClassName"].Text()) {
    for (Draft& draft : drafts) draft.pod.spec["priorityClassName"] = *priority;
  }
}

spec::Framework ChooseFramework(const Field& plugins, const Draft& worker) {
  if (plugins["pytorch"].present()) return spec::Framework::kPyTorch;
  if (plugins["tensorflow"].present()) return spec::Framework::kTensorFlow;
  return GuessFramework(worker.pod);
}

// mpimaster and mpiworker, as in Volcano's examples, or what the plugin mpi was told.
bool IsMpi(const Field& spec) {
  if (spec["plugins"]["mpi"].present()) return true;
  const std::vector<Field> tasks = spec["tasks"].Items();
  return std::any_of(tasks.begin(), tasks.end(),
                     [](const Field& task) { return task["name"].Peek() == "mpimaster"; });
}

}  // namespace

std::optional<spec::TrainingJob> ReadVolcanoJob(const Field& object) {
  spec::TrainingJob job;
  ReadObject(object, job);
  const Field spec = object["spec"];
  const bool mpi = IsMpi(spec);
  job.run_policy.max_restarts = ReadCount(spec["maxRetry"], 0).value_or(kMaxRetry);
  std::vector<Draft> drafts;
  for (const Field& task : spec["tasks"].Items()) {
    if (std::optional<Draft> draft = ReadTask(task, job.run_policy)) drafts.push_back(std::move(*draft));
  }
  if (drafts.empty()) {
    spec["tasks"].LeaveOut("has no pods; left out");
    return std::nullopt;
  }
  for (const Field& policy : spec["policies"].Items()) ReadPolicy(policy, job.run_policy);
  job.run_policy.ttl_after_finished = ReadSeconds(spec["ttlSecondsAfterFinished"], 0);

  const auto is = [](std::string_view role) {
    return [role](const Draft& draft) { return draft.role == role; };
  };
  const auto master = std::find_if(drafts.begin(), drafts.end(), is("chief"));
  const auto worker = std::find_if(drafts.begin(), drafts.end(), is("worker"));
  spec::Framework framework = spec::Framework::kNone;
  if (mpi && master != drafts.end() && worker != drafts.end()) {
    framework = FoldLauncher(*master, 1, *worker);
    drafts.erase(master);
  } else {
    framework = ChooseFramework(spec["plugins"], worker == drafts.end() ? drafts.front() : *worker);
    for (Draft& draft : drafts) StartAsTorchrunDoes(std::nullopt, "1", draft);
  }
  ReadPlugins(spec["plugins"]);
  ReadGang(spec, drafts, job.run_policy);
  ReadVolumes(spec["volumes"], drafts);
  SetRoles(std::move(drafts), framework, job);
  return job;
}

}  // namespace lockstep::importer
