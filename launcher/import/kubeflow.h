#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "launcher/import/translation.h"

// What TFJob, PyTorchJob and MPIJob have in common (training-operator,
// pkg/apis/kubeflow.org/v1/common_types.go).
namespace lockstep::importer {

// How their replicas are to be restarted, collected over the roles.
struct RestartPolicies {
  std::vector<Field> never;
  std::vector<Field> again;  // OnFailure, Always
  std::vector<Field> by_exit_code;
  std::optional<int> most;  // an elastic job's own limit
};

// A ReplicaSpec: empty where it has no replicas, which is told. `container` as of ReadPod.
std::optional<Draft> ReadReplicas(const Field& spec, std::string_view role, std::string_view container,
                                  RestartPolicies& restarts);

// spec.runPolicy; the drafts get what it says of pods.
void ReadRunPolicy(const Field& policy, const RestartPolicies& restarts, std::vector<Draft>& drafts,
                   spec::TrainingJob& job);

// "None", "Running" or "All".
void ReadCleanPodPolicy(const Field& policy, spec::RunPolicy& run_policy);
// Whole seconds, from `least`.
std::optional<std::chrono::seconds> ReadSeconds(const Field& field, int least);

}  // namespace lockstep::importer
