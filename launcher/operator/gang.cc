#include "launcher/operator/gang.h"

#include <nlohmann/json.hpp>

#include "launcher/operator/children.h"
#include "launcher/operator/names.h"
#include "launcher/spec/roles.h"

namespace lockstep::op {

using Json = nlohmann::json;
using spec::GangScheduler;

bool HasGang(const spec::TrainingJob& manifest) {
  return manifest.run_policy.gang != GangScheduler::kNone && spec::ReplicasOf(manifest) > 1;
}

int NeededReplicas(const spec::TrainingJob& manifest) {
  int needed = spec::ReplicasOf(manifest);
  for (const spec::Role& role : manifest.roles) {
    if (role.name == "worker" && manifest.run_policy.min_replicas) {
      needed -= role.replicas - *manifest.run_policy.min_replicas;
    }
  }
  return needed;
}

kube::Resource GangResource(GangScheduler scheduler) {
  switch (scheduler) {
    case GangScheduler::kVolcano:
      return {"scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup"};
    case GangScheduler::kWorkload:
      return {"scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup"};
    case GangScheduler::kCoscheduling:
    case GangScheduler::kNone:
      break;
  }
  return {"scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup"};
}

Json GangObject(const ObservedJob& job, const spec::TrainingJob& manifest, int attempt) {
  const GangScheduler scheduler = manifest.run_policy.gang;
  const int needed = NeededReplicas(manifest);
  Json spec;
  if (scheduler == GangScheduler::kWorkload) {
    spec = {{"schedulingPolicy", {{"gang", {{"minCount", needed}}}}}};
  } else {
    spec = {{"minMember", needed}};
  }
  return {{"apiVersion", GangResource(scheduler).api_version()},
          {"kind", "PodGroup"},
          {"metadata", ChildMetadata(job, GangName(job.name, attempt), "")},
          {"spec", std::move(spec)}};
}

void ChooseScheduler(const spec::TrainingJob& manifest, Json& pod) {
  // The others' plugins are in whatever scheduler the cluster has.
  if (HasGang(manifest) && manifest.run_policy.gang == GangScheduler::kVolcano) {
    pod["spec"]["schedulerName"] = "volcano";
  }
}

void JoinGang(const ObservedJob& job, const spec::TrainingJob& manifest, int attempt, Json& pod) {
  if (!HasGang(manifest)) return;
  const std::string name = GangName(job.name, attempt);
  switch (manifest.run_policy.gang) {
    case GangScheduler::kCoscheduling:
      pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = name;
      return;
    case GangScheduler::kVolcano:
      pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = name;
      return;
    case GangScheduler::kWorkload:
      pod["spec"]["schedulingGroup"] = {{"podGroupName", name}};
      return;
    case GangScheduler::kNone:
      return;
  }
}

}  // namespace lockstep::op
