#include <algorithm>
#include <utility>

#include "launcher/import/kinds.h"
#include "launcher/import/kubeflow.h"

namespace lockstep::importer {

namespace {

constexpr char kOwnRendezvous[] = "not needed: Lockstep's agents find one another by themselves";

// torchrun's elasticity (pytorch_types.go): some replicas, of which not all have to be there.
void ReadElasticPolicy(const Field& policy, std::vector<Draft>& drafts, spec::TrainingJob& job) {
  for (const char* field : {"rdzvBackend", "rdzvPort", "rdzvHost", "rdzvId", "standalone"}) {
    if (policy[field].present()) policy[field].Explain(kOwnRendezvous);
  }
  if (policy["metrics"].present()) {
    policy["metrics"].LeaveOut(
        "left out: nothing scales the job by load; it takes the replicas that there are room for");
  }
  const auto worker =
      std::find_if(drafts.begin(), drafts.end(), [](const Draft& draft) { return draft.role == "worker"; });
  const std::optional<int> most = ReadCount(policy["maxReplicas"], 1);
  const std::optional<int> least = ReadCount(policy["minReplicas"], 1);
  if (worker == drafts.end()) return;
  if (most && *most > worker->replicas) {
    policy["maxReplicas"].Say("replicas: " + std::to_string(*most) +
                              ": an elastic job begins without those for which "
                              "there is no room, and takes them in later");
    worker->replicas = *most;
  } else if (most && *most < worker->replicas) {
    policy["maxReplicas"].Say("less than replicas: left out", true);
  }
  if (!least) return;
  if (drafts.size() > 1) {
    policy["minReplicas"].Say("left out: a job of several roles does not go on with fewer replicas", true);
  } else {
    job.run_policy.min_replicas = std::min(*least, worker->replicas);
    if (*least > worker->replicas)
      policy["minReplicas"].Say("more than replicas: cut to " + std::to_string(worker->replicas), true);
  }
}

}  // namespace

std::optional<spec::TrainingJob> ReadPyTorchJob(const Field& object) {
  spec::TrainingJob job;
  ReadObject(object, job);
  const Field spec = object["spec"];
  std::vector<Draft> drafts;
  const Field elastic = spec["elasticPolicy"];
  RestartPolicies restarts{.most = ReadCount(elastic["maxRestarts"], 0)};
  const Field old_processes = elastic["nProcPerNode"];
  const Field processes =
      spec["nprocPerNode"].present() || !old_processes.present() ? spec["nprocPerNode"] : old_processes;
  for (const auto& [type, role] : {std::pair("Master", "chief"), std::pair("Worker", "worker")}) {
    const Field replicas = spec["pytorchReplicaSpecs"][type];
    if (!replicas.present()) continue;
    std::optional<Draft> draft = ReadReplicas(replicas, role, "pytorch", restarts);
    if (!draft) continue;
    StartAsTorchrunDoes(processes, "auto", *draft);
    drafts.push_back(std::move(*draft));
  }
  if (drafts.empty()) {
    spec["pytorchReplicaSpecs"].LeaveOut("has neither Master nor Worker; left out");
    return std::nullopt;
  }
  ReadRunPolicy(spec["runPolicy"], restarts, drafts, job);
  if (elastic.present()) ReadElasticPolicy(elastic, drafts, job);
  SetRoles(std::move(drafts), spec::Framework::kPyTorch, job);
  return job;
}

}  // namespace lockstep::importer
