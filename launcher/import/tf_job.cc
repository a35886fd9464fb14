#include <array>
#include <utility>

#include "launcher/import/kinds.h"
#include "launcher/import/kubeflow.h"

namespace lockstep::importer {

std::optional<spec::TrainingJob> ReadTfJob(const Field& object) {
  static constexpr std::array<std::pair<const char*, const char*>, 6> kRoles = {{{"Chief", "chief"},
                                                                                 {"Master", "chief"},
                                                                                 {"Worker", "worker"},
                                                                                 {"PS", "ps"},
                                                                                 {"Evaluator", "evaluator"},
                                                                                 {"Eval", "evaluator"}}};
  spec::TrainingJob job;
  ReadObject(object, job);
  const Field spec = object["spec"];
  RestartPolicies restarts;
  std::vector<Draft> drafts;
  for (const auto& [type, role] : kRoles) {
    const Field replicas = spec["tfReplicaSpecs"][type];
    if (!replicas.present()) continue;
    std::optional<Draft> draft = ReadReplicas(replicas, role, "tensorflow", restarts);
    if (!draft) continue;
    StartAsIs(*draft);
    drafts.push_back(std::move(*draft));
  }
  if (drafts.empty()) {
    spec["tfReplicaSpecs"].LeaveOut("has no Chief, Worker, PS or Evaluator; left out");
    return std::nullopt;
  }
  ReadRunPolicy(spec["runPolicy"], restarts, drafts, job);
  if (const std::optional<bool> dynamic = spec["enableDynamicWorker"].Boolean(); dynamic.value_or(false)) {
    spec["enableDynamicWorker"].Say(
        "left out; runPolicy.minReplicas says with how many replicas a job goes on", true);
  }
  if (const Field policy = spec["successPolicy"]; policy.Peek() == "AllWorkers") {
    policy.Explain("not needed: the job is done when all workers are, and the chief");
  } else if (policy.present()) {
    policy.LeaveOut("left out: the job is done when all workers are, and the chief");
  }
  SetRoles(std::move(drafts), spec::Framework::kTensorFlow, job);
  return job;
}

}  // namespace lockstep::importer
