#pragma once

#include <string>
#include <string_view>
#include <tuple>

namespace lockstep::kube {

// A kind of object as the API addresses it. The texts are literals.
struct Resource {
  std::string_view group;  // empty: the core group
  std::string_view version;
  std::string_view plural;
  std::string_view kind;
  bool namespaced = true;

  // "batch/v1", "v1".
  std::string api_version() const;
  bool operator==(const Resource&) const = default;
};

inline constexpr Resource kPods{"", "v1", "pods", "Pod"};
inline constexpr Resource kServices{"", "v1", "services", "Service"};
inline constexpr Resource kSecrets{"", "v1", "secrets", "Secret"};
inline constexpr Resource kConfigMaps{"", "v1", "configmaps", "ConfigMap"};
inline constexpr Resource kEvents{"", "v1", "events", "Event"};
inline constexpr Resource kNodes{"", "v1", "nodes", "Node", false};
inline constexpr Resource kNamespaces{"", "v1", "namespaces", "Namespace", false};
inline constexpr Resource kJobs{"batch", "v1", "jobs", "Job"};
inline constexpr Resource kLeases{"coordination.k8s.io", "v1", "leases", "Lease"};
inline constexpr Resource kCustomResourceDefinitions{
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false};
inline constexpr Resource kTrainingJobs{"lockstep.dev", "v1alpha1", "trainingjobs", "TrainingJob"};

// Which object. `space` is the namespace: empty for a kind without namespaces.
struct ObjectName {
  std::string space;
  std::string name;

  std::string ToString() const;  // "space/name", "name"
  bool operator==(const ObjectName&) const = default;
  bool operator<(const ObjectName& other) const {
    return std::tie(space, name) < std::tie(other.space, other.name);
  }
};

// "/apis/batch/v1/namespaces/default/jobs/digits-worker-0/status". An empty namespace of a namespaced kind is
// all of them; an empty name is the collection. Names are percent-encoded.
std::string PathOf(const Resource& resource, const ObjectName& name, std::string_view subresource = {});

}  // namespace lockstep::kube
