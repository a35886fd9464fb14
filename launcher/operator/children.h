#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "launcher/operator/observe.h"
#include "launcher/operator/planner.h"
#include "launcher/spec/training_job.h"

// The objects that the operator makes, as JSON for the API. Pure. All carry the labels of names.h and belong
// to the job by an owner reference, so that they go with it.
namespace lockstep::op {

// What the objects depend on besides the job.
struct ChildOptions {
  std::string image = "lockstep";  // unless the template says otherwise
  std::string pull_policy;         // empty: the cluster's default
  std::string cluster_domain = "cluster.local";
  std::string gpu_resource = "nvidia.com/gpu";
};

// The manifest of the job in a form that its spec may have: the reader's verdict on it, on what this version
// does not do yet, and on its templates.
Manifest ReadJobManifest(const ObservedJob& job, const ChildOptions& options);

// What the agents are given: the manifest without templates, with the restarts that are left, and annotated
// with uid and attempt, so that agents of different attempts never take one another for theirs.
std::string AgentManifest(const ObservedJob& job, const spec::TrainingJob& manifest, int attempt,
                          int restarts);

// Name, labels and owner of what the operator makes for a job; `role` empty: of none alone.
nlohmann::json ChildMetadata(const ObservedJob& job, const std::string& name, const std::string& role);

// `token` is 64 hexadecimal digits.
nlohmann::json TokenSecret(const ObservedJob& job, const std::string& token);
nlohmann::json HeadlessService(const ObservedJob& job, const std::string& role);
// `manifest` is one that ReadJobManifest accepted and has the role.
nlohmann::json JobObject(const ObservedJob& job, const Manifest& manifest, const CreateJob& action,
                         const ChildOptions& options);

// The port that agents serve HTTP on.
int HttpPort(const spec::TrainingJob& manifest);

}  // namespace lockstep::op
