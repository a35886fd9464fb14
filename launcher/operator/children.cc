#include "launcher/operator/children.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "common/contract/digest.h"
#include "launcher/operator/gang.h"
#include "launcher/operator/inject.h"
#include "launcher/operator/json_fields.h"
#include "launcher/operator/names.h"
#include "launcher/operator/pod_template.h"
#include "launcher/spec/fields_job.h"
#include "launcher/spec/json.h"
#include "launcher/spec/manifest.h"
#include "launcher/spec/roles.h"
#include "launcher/spec/unsupported.h"

namespace lockstep::op {

using Json = nlohmann::json;

namespace {

// A user that exists nowhere: what "restricted" asks for, and enough for all that the agent does.
constexpr int kUser = 65532;
// From the agent's own end of the ranks to SIGKILL: it reports, and its output is read.
constexpr auto kGraceForAgent = std::chrono::seconds(5);
constexpr size_t kMaxAnnotation = 200 << 10;  // the API allows 256 KiB for all of an object

Json LabelsOf(const ObservedJob& job, const std::string& role) {
  Json labels = {{kManagedByLabel, kManagedBy}, {kJobNameLabel, job.name}, {kJobUidLabel, job.uid}};
  if (!role.empty()) labels[kRoleLabel] = role;
  return labels;
}

// Short, as it stands in an annotation.
std::string Fingerprint(std::string_view text) { return contract::Digest(text).substr(0, 16); }

// Manifest::pods.
std::string PodsOf(const spec::TrainingJob& manifest) {
  static const std::string table = Fingerprint(spec::Schema()).substr(0, 8);
  spec::TrainingJob made = manifest;
  made.suspend = false;
  made.labels.clear();
  made.annotations.clear();
  const spec::RunPolicy none;
  made.run_policy.max_restarts = none.max_restarts;
  made.run_policy.active_deadline = none.active_deadline;
  made.run_policy.schedule_timeout = none.schedule_timeout;
  made.run_policy.ttl_after_finished = none.ttl_after_finished;
  made.run_policy.clean_pod_policy = none.clean_pod_policy;
  return table + "-" + Fingerprint(spec::ToJson(made));
}

const spec::Role& RoleOf(const spec::TrainingJob& manifest, const std::string& name) {
  return *std::find_if(manifest.roles.begin(), manifest.roles.end(),
                       [&](const spec::Role& role) { return role.name == name; });
}

Json FieldVariable(const char* name, const char* field) {
  return {{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", field}}}}}};
}

Json Probe(const char* path, int period, int failures) {
  return {{"httpGet", {{"path", path}, {"port", "http"}}},
          {"periodSeconds", period},
          {"timeoutSeconds", 2},
          {"failureThreshold", failures}};
}

// Whether the agents tell each other the names of their pods and not the addresses: a pod that takes
// another's place while the others go on has its name only, and TPUs' libraries look for names.
bool NamesItsPods(const spec::TrainingJob& manifest) {
  return manifest.roles.size() > 1 ||
         std::any_of(manifest.roles.begin(), manifest.roles.end(),
                     [](const spec::Role& role) { return role.devices.type == spec::DeviceType::kTpu; });
}

Json Container(const ObservedJob& job, const spec::TrainingJob& manifest, const CreateJob& action,
               const ChildOptions& options) {
  const std::string file = std::string(kManifestFolder) + "/" + kManifestFile;
  Json command = {"lockstep",   "agent",
                  "--manifest", file,
                  "--attempt",  std::to_string(action.attempt),
                  "--run-dir",  std::string(kRunFolder) + "/run"};
  if (manifest.roles.size() > 1) {
    command.push_back("--role");
    command.push_back(action.role);
  }
  Json mounts = Json::array({{{"name", "lockstep-job"}, {"mountPath", kManifestFolder}, {"readOnly", true}},
                             {{"name", "lockstep-run"}, {"mountPath", kRunFolder}},
                             {{"name", "lockstep-tmp"}, {"mountPath", "/tmp"}},
                             {{"name", "lockstep-shm"}, {"mountPath", "/dev/shm"}}});
  if (spec::ReplicasOf(manifest) > 1) {
    const std::string& leader = manifest.roles.front().name;
    const std::string child = ChildJobName(job.name, leader, action.attempt);
    const std::string host =
        PodHost(child, 0, ServiceName(job.name, leader), job.space, options.cluster_domain);
    command.push_back("--rendezvous");
    command.push_back(host + ":" + std::to_string(kRendezvousPort));
    if (NamesItsPods(manifest)) {
      command.push_back("--domain");
      command.push_back(PodDomain(ServiceName(job.name, action.role), job.space, options.cluster_domain));
    }
    command.push_back("--token-file");
    command.push_back(std::string(kTokenFolder) + "/" + kTokenKey);
    mounts.push_back({{"name", "lockstep-token"}, {"mountPath", kTokenFolder}, {"readOnly", true}});
  }
  Json container = {
      {"name", kContainer},
      {"image", options.image},
      {"command", std::move(command)},
      {"env", Json::array({FieldVariable("LOCKSTEP_POD_NAME", "metadata.name"),
                           FieldVariable("LOCKSTEP_POD_UID", "metadata.uid"),
                           FieldVariable("LOCKSTEP_NODE", "spec.nodeName")})},
      {"ports", Json::array({{{"name", "http"}, {"containerPort", HttpPort(manifest)}},
                             {{"name", "rendezvous"}, {"containerPort", kRendezvousPort}}})},
      // The agent comes back by itself within seconds; this is for one that no longer moves at all.
      {"livenessProbe", Probe("/healthz", 10, 6)},
      {"readinessProbe", Probe("/readyz", 5, 1)},
      {"securityContext",
       {{"allowPrivilegeEscalation", false},
        {"readOnlyRootFilesystem", true},
        {"capabilities", {{"drop", {"ALL"}}}}}},
      {"volumeMounts", std::move(mounts)}};
  if (!options.pull_policy.empty()) container["imagePullPolicy"] = options.pull_policy;
  return container;
}

Json Volumes(const ObservedJob& job, const spec::TrainingJob& manifest) {
  const std::string annotation = std::string("metadata.annotations['") + kManifestAnnotation + "']";
  Json volumes = Json::array();
  volumes.push_back(
      {{"name", "lockstep-job"},
       {"downwardAPI",
        {{"items", Json::array({{{"path", kManifestFile}, {"fieldRef", {{"fieldPath", annotation}}}}})}}}});
  volumes.push_back({{"name", "lockstep-run"}, {"emptyDir", Json::object()}});
  volumes.push_back({{"name", "lockstep-tmp"}, {"emptyDir", Json::object()}});
  // The runtime's own has 64 MiB, too little for gradients.
  volumes.push_back({{"name", "lockstep-shm"}, {"emptyDir", {{"medium", "Memory"}}}});
  if (spec::ReplicasOf(manifest) > 1) {
    volumes.push_back(
        {{"name", "lockstep-token"},
         {"secret", {{"secretName", TokenSecretName(job.name, job.uid)}, {"defaultMode", 0440}}}});
  }
  return volumes;
}

// A role that wants GPUs and whose template asks for none gets one for each that it uses.
void AskForGpus(const spec::Role& role, const ChildOptions& options, Json& pod) {
  if (role.devices.type != spec::DeviceType::kGpu) return;
  for (Json& container : pod["spec"]["containers"]) {
    if (Text(container, "name") != kContainer) continue;
    const Json& resources = Child(container, "resources");
    if (!Items(resources, "claims").empty()) return;
    const Json& limits = Child(resources, "limits");
    if (limits.is_object()) {
      for (const auto& [name, amount] : limits.items()) {
        if (name.starts_with("nvidia.com/") || name == options.gpu_resource) return;
      }
    }
    int gpus = static_cast<int>(role.devices.visible.size());
    if (gpus == 0) {
      const int per_device = role.devices.virtual_devices ? role.devices.virtual_devices->per_device : 1;
      gpus = (role.processes_per_replica.value_or(1) + per_device - 1) / per_device;
    }
    container["resources"]["limits"][options.gpu_resource] = gpus;
  }
}

// As GKE documents it: the slice by its node labels, and its chips as a resource.
void AskForTpus(const spec::Role& role, Json& pod) {
  if (role.devices.type != spec::DeviceType::kTpu) return;
  Json& nodes = pod["spec"]["nodeSelector"];
  nodes[kTpuAcceleratorLabel] = role.devices.accelerator;
  nodes[kTpuTopologyLabel] = role.devices.topology;
  for (Json& container : pod["spec"]["containers"]) {
    if (Text(container, "name") != kContainer) continue;
    for (const char* kind : {"requests", "limits"}) {
      container["resources"][kind][kTpuResource] = spec::TpuChipsOf(role);
    }
  }
}

Json PodTemplate(const ObservedJob& job, const spec::TrainingJob& manifest, const CreateJob& action,
                 const ChildOptions& options, Conflicts& conflicts) {
  const spec::Role& role = RoleOf(manifest, action.role);
  Json labels = LabelsOf(job, action.role);
  labels[kAttemptLabel] = std::to_string(action.attempt);
  const auto grace = manifest.run_policy.termination_grace_period + kGraceForAgent;
  Json pod = {{"metadata",
               {{"labels", std::move(labels)},
                {"annotations",
                 {{kManifestAnnotation, AgentManifest(job, manifest, action.attempt, action.restarts)}}}}},
              {"spec",
               {{"restartPolicy", "Never"},
                {"automountServiceAccountToken", false},
                {"enableServiceLinks", false},
                {"terminationGracePeriodSeconds", grace.count()},
                {"securityContext",
                 {{"runAsNonRoot", true},
                  {"runAsUser", kUser},
                  {"runAsGroup", kUser},
                  {"fsGroup", kUser},
                  {"seccompProfile", {{"type", "RuntimeDefault"}}}}},
                {"containers", Json::array({Container(job, manifest, action, options)})},
                {"volumes", Volumes(job, manifest)}}}};
  if (spec::ReplicasOf(manifest) > 1) pod["spec"]["subdomain"] = ServiceName(job.name, action.role);
  ChooseScheduler(manifest, pod);
  InjectLauncher(manifest, options, pod);
  if (!role.pod_template_json.empty()) {
    const Json overlay = Json::parse(role.pod_template_json, nullptr, /*allow_exceptions=*/false);
    conflicts = CheckTemplate(overlay);
    MergeTemplate(pod, overlay, conflicts);
  }
  JoinGang(job, manifest, action.attempt, pod);
  AskForGpus(role, options, pod);
  AskForTpus(role, pod);
  return pod;
}

// The pod's end says which of three things happened: 0, the job is done; 2 or 3, the agents agree that it
// has failed (job/ and agent/ see to it that nothing else ends with these); anything else, this pod is lost.
Json FailurePolicy() {
  return {
      {"rules",
       Json::array(
           {{{"action", "Ignore"},
             {"onPodConditions", Json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}})}},
            {{"action", "FailJob"},
             {"onExitCodes", {{"containerName", kContainer}, {"operator", "In"}, {"values", {2, 3}}}}}})}};
}

}  // namespace

Json ChildMetadata(const ObservedJob& job, const std::string& name, const std::string& role) {
  return {{"name", name},
          {"namespace", job.space},
          {"labels", LabelsOf(job, role)},
          {"ownerReferences", Json::array({{{"apiVersion", spec::kApiVersion},
                                            {"kind", spec::kKind},
                                            {"name", job.name},
                                            {"uid", job.uid},
                                            {"controller", true},
                                            {"blockOwnerDeletion", true}}})}};
}

int HttpPort(const spec::TrainingJob& manifest) {
  return manifest.http.port == 0 ? kHttpPort : manifest.http.port;
}

Manifest ReadJobManifest(const ObservedJob& job, const ChildOptions& options) {
  const Json spec = Json::parse(job.spec, nullptr, /*allow_exceptions=*/false);
  const Json document = {{"apiVersion", spec::kApiVersion},
                         {"kind", spec::kKind},
                         {"metadata", {{"name", job.name}, {"namespace", job.space}}},
                         {"spec", spec.is_discarded() ? Json() : spec}};
  spec::Manifests read = spec::ReadManifests(document.dump(), job.name);
  std::string problems;
  const auto add = [&](const std::string& problem) { problems += (problems.empty() ? "" : "; ") + problem; };
  for (const spec::Diagnostic& error : read.errors) add(error.path + ": " + error.what);
  if (!problems.empty() || read.jobs.size() != 1) return {.reason = "InvalidSpec", .invalid = problems};

  spec::TrainingJob& manifest = read.jobs.front();
  for (const spec::Finding& finding : spec::UnsupportedFields(manifest)) {
    if (finding.path != "spec.suspend") add(finding.path + ": " + finding.what);
  }
  if (!problems.empty()) return {.reason = "Unsupported", .invalid = problems};

  for (const spec::Role& role : manifest.roles) {
    Conflicts conflicts;
    PodTemplate(job, manifest, {.role = role.name}, options, conflicts);
    for (const std::string& conflict : conflicts) add("template." + conflict);
  }
  if (!problems.empty()) return {.reason = "InvalidTemplate", .invalid = problems};
  if (AgentManifest(job, manifest, 0, 0).size() > kMaxAnnotation) {
    return {.reason = "InvalidSpec", .invalid = "the manifest is too large for a pod's annotation"};
  }
  std::string pods = PodsOf(manifest);
  return {.job = std::move(manifest), .pods = std::move(pods)};
}

std::string AgentManifest(const ObservedJob& job, const spec::TrainingJob& manifest, int attempt,
                          int restarts) {
  spec::TrainingJob given = manifest;
  for (spec::Role& role : given.roles) role.pod_template_json.clear();
  given.labels.clear();
  given.annotations = {{kJobUidLabel, job.uid}, {kAttemptLabel, std::to_string(attempt)}};
  // What is the operator's to do.
  given.suspend = false;
  given.inject_launcher = false;
  given.run_policy.max_restarts = std::max(0, manifest.run_policy.max_restarts - restarts);
  given.run_policy.active_deadline.reset();
  given.run_policy.ttl_after_finished.reset();
  given.run_policy.schedule_timeout.reset();
  given.run_policy.clean_pod_policy = {};
  given.run_policy.gang = {};
  // Probes and the operator come from outside of the pod.
  if (given.http.address == spec::Http().address) given.http.address = "0.0.0.0";
  given.http.port = HttpPort(manifest);
  return spec::ToJson(given);
}

Json TokenSecret(const ObservedJob& job, const std::string& token) {
  return {{"apiVersion", "v1"},
          {"kind", "Secret"},
          {"metadata", ChildMetadata(job, TokenSecretName(job.name, job.uid), "")},
          {"immutable", true},
          {"stringData", {{kTokenKey, token + "\n"}}}};
}

Json HeadlessService(const ObservedJob& job, const std::string& role) {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata", ChildMetadata(job, ServiceName(job.name, role), role)},
          {"spec",
           {{"clusterIP", "None"},
            // They look for one another in order to become ready.
            {"publishNotReadyAddresses", true},
            {"selector", {{kJobUidLabel, job.uid}, {kRoleLabel, role}}},
            {"ports", Json::array({{{"name", "rendezvous"}, {"port", kRendezvousPort}}})}}}};
}

Json JobObject(const ObservedJob& job, const Manifest& read, const CreateJob& action,
               const ChildOptions& options) {
  const spec::TrainingJob& manifest = *read.job;
  const spec::Role& role = RoleOf(manifest, action.role);
  Json meta = ChildMetadata(job, ChildJobName(job.name, action.role, action.attempt), action.role);
  meta["labels"][kAttemptLabel] = std::to_string(action.attempt);
  if (!job.queue.empty()) meta["labels"][kQueueLabel] = job.queue;
  if (!job.priority_class.empty()) meta["labels"][kPriorityClassLabel] = job.priority_class;
  meta["annotations"] = {{kRestartsAnnotation, std::to_string(action.restarts)},
                         {kPodsAnnotation, read.pods}};
  // The planner makes a new attempt long before this, if it may. A job that goes on with fewer replicas has
  // any number of pods tried.
  constexpr int64_t kNever = 1'000'000;
  const int restarts = manifest.run_policy.max_restarts;
  int64_t backoff = restarts == 0 ? 0 : int64_t{restarts} * role.replicas + 2;
  if (NeededReplicas(manifest) < spec::ReplicasOf(manifest)) backoff = kNever;
  Conflicts conflicts;  // none: see ReadJobManifest
  return {{"apiVersion", "batch/v1"},
          {"kind", "Job"},
          {"metadata", std::move(meta)},
          {"spec",
           {{"completionMode", "Indexed"},
            {"completions", role.replicas},
            {"parallelism", role.replicas},
            {"backoffLimit", std::min(backoff, kNever)},
            // Never two of one index; what the other choice would do about dead nodes the planner does.
            {"podReplacementPolicy", "Failed"},
            {"podFailurePolicy", FailurePolicy()},
            {"suspend", action.suspended},
            {"template", PodTemplate(job, manifest, action, options, conflicts)}}}};
}

}  // namespace lockstep::op
