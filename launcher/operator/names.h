#pragma once

#include <string>
#include <string_view>

// operator/: makes the cluster look as TrainingJobs say, by an Indexed batch/v1 Job a role and, for jobs of
// several replicas, a headless Service a role and a Secret. It makes no pods itself.
//
//   observe.h   objects of the API → plain values, only what is used   planner.h   values → what to do: pure
//   children.h  the objects that it makes, pod_template.h and inject.h their pods, gang.h their group
//   executor.h  does it, one write each
//   controller.h  which job when: watches, the queue, the lease
//
// The planner decides from what is there and what the job's own status records, never from memory, so that
// every step may be repeated: after a crash, by a second leader, on stale watches.
//
// names.h has every name and label that the operator and its agents agree upon.
namespace lockstep::op {

inline constexpr char kManagedByLabel[] = "app.kubernetes.io/managed-by";
inline constexpr char kManagedBy[] = "lockstep";
inline constexpr char kJobNameLabel[] = "lockstep.dev/job-name";
inline constexpr char kJobUidLabel[] = "lockstep.dev/job-uid";
inline constexpr char kRoleLabel[] = "lockstep.dev/role";
inline constexpr char kAttemptLabel[] = "lockstep.dev/attempt";
// Set by the Job controller on its pods.
inline constexpr char kPodIndexLabel[] = "batch.kubernetes.io/job-completion-index";
inline constexpr char kPodJobUidLabel[] = "batch.kubernetes.io/controller-uid";
inline constexpr char kQueueLabel[] = "kueue.x-k8s.io/queue-name";
inline constexpr char kPriorityClassLabel[] = "kueue.x-k8s.io/priority-class";

// On a child Job: the restarts that the job had behind it when this attempt was made.
inline constexpr char kRestartsAnnotation[] = "lockstep.dev/restarts";
// On a child Job: the fingerprint of what its pods were made of, see Manifest::pods.
inline constexpr char kPodsAnnotation[] = "lockstep.dev/pods";
// On a pod: the manifest for its agent, as JSON.
inline constexpr char kManifestAnnotation[] = "lockstep.dev/manifest";

inline constexpr char kContainer[] = "lockstep";  // the one that the agent runs in
inline constexpr char kInjectContainer[] = "lockstep-inject";
inline constexpr int kHttpPort = 8080;  // unless spec.http.port says otherwise
inline constexpr int kRendezvousPort = 29400;

// GKE's, of nodes with TPUs, and the resource that they offer.
inline constexpr char kTpuAcceleratorLabel[] = "cloud.google.com/gke-tpu-accelerator";
inline constexpr char kTpuTopologyLabel[] = "cloud.google.com/gke-tpu-topology";
inline constexpr char kTpuResource[] = "google.com/tpu";

// Files of a pod.
inline constexpr char kManifestFolder[] = "/etc/lockstep/job";
inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kTokenFolder[] = "/etc/lockstep/token";
inline constexpr char kTokenKey[] = "token";
inline constexpr char kRunFolder[] = "/var/run/lockstep";
// The launcher with all that it loads, in its own images and where it is injected (BUNDLE in
// containers/image.py).
inline constexpr char kLauncherFolder[] = "/opt/lockstep";

// "mnist-worker-0": with an index after it still at most 63 characters, for names of at most 40.
std::string ChildJobName(std::string_view job, std::string_view role, int attempt);
// "mnist-worker".
std::string ServiceName(std::string_view job, std::string_view role);
// "mnist-0": each attempt has its own, since a group's state is that of its pods.
std::string GangName(std::string_view job, int attempt);
// With the uid, so that a job made again under an old name never meets the old token.
std::string TokenSecretName(std::string_view job, std::string_view uid);
// "mnist-worker.default.svc.cluster.local": behind a pod's own name.
std::string PodDomain(std::string_view service, std::string_view space, std::string_view cluster_domain);
// "mnist-worker-0-3.mnist-worker.default.svc.cluster.local.": the trailing dot spares the search list.
std::string PodHost(std::string_view child_job, int index, std::string_view service, std::string_view space,
                    std::string_view cluster_domain);

}  // namespace lockstep::op
