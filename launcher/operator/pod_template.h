#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

// A user's `template` laid over the pod that the operator makes: by the rules of Kubernetes' strategic merge
// patch, so that it reads as with `kubectl patch`. Pure.
namespace lockstep::op {

// What of a template cannot be had, each as "spec.restartPolicy: …".
using Conflicts = std::vector<std::string>;

// `pod` (a PodTemplateSpec) is changed as `overlay` says: mappings are merged, a null takes a field away,
// lists with a merge key (containers and volumes by name, environment by name, mounts by their path …) are
// merged item by item, other lists are replaced. `$patch` and the like are conflicts.
void MergeTemplate(nlohmann::json& pod, const nlohmann::json& overlay, Conflicts& conflicts);

// Checks what the agents rely upon, before the merge: fields, labels, variables and volumes that are ours.
Conflicts CheckTemplate(const nlohmann::json& overlay);

}  // namespace lockstep::op
