#pragma once

#include "launcher/spec/fields.h"
#include "launcher/spec/fields_role.h"
#include "launcher/spec/fields_trainer.h"

// The fields of a whole TrainingJob. See fields.h.
namespace lockstep::spec {

inline constexpr char kApiVersion[] = "lockstep.dev/v1alpha1";
inline constexpr char kKind[] = "TrainingJob";

// How a manifest writes a job: one role's fields directly under spec, or a list of roles.
struct Manifest {
  TrainingJob* job;
  Role* worker;              // the short form's
  std::vector<Role>* roles;  // empty: the short form
};

struct Metadata {
  TrainingJob* job;
};

struct Spec {
  Manifest manifest;
};

struct Placement {
  std::vector<LayerPlacement>* layers;
};

struct Launcher {
  bool* inject;
};

template <class V>
void Describe(V& field, LayerRange& range) {
  field("first", range.first,
        {.doc = "The first layer, counted from 0.", .required = true, .min = 0, .max = 10'000});
  field("last", range.last, {.doc = "The last layer, included.", .required = true, .min = 0, .max = 10'000});
}

template <class V>
void Describe(V& field, Strategy& strategy) {
  using enum StrategyType;
  field("type", strategy.type,
        {.doc = "What the processes exchange: `OneDevice` nothing, there is one process; `Mirrored` "
                "gradients, on one "
                "machine; `MultiWorkerMirrored` gradients, on several; `ParameterServer` gradients for "
                "variables, with "
                "the role ps; `CentralStorage` the same with the variables in one place of one machine; "
                "`Pipeline` "
                "activations between groups of layers, on processors or GPUs of one machine.",
         .or_else = "Mirrored for one replica, MultiWorkerMirrored for more"});
  const auto mirrored = If("type", strategy.type, {kMirrored, kMultiWorkerMirrored});
  const auto served = If("type", strategy.type, {kParameterServer});
  const auto pipeline = If("type", strategy.type, {kPipeline});
  field("crossDeviceOps", strategy.cross_device_ops,
        {.doc =
             "What sums the gradients. `Auto`: NCCL on GPUs of their own, HierarchicalCopy where some share "
             "one; SharedMemory on processors of one machine, and Gloo between machines. `NCCL` is for GPUs. "
             "`HierarchicalCopy` along a tree, and `ReductionToOneDevice` at the first process, are for one "
             "machine, GPUs or processors. `SharedMemory`, for one machine, and `Gloo` are for processors."},
        mirrored);
  field(
      "variables", strategy.variables,
      {.doc = "Where central or served variables live. With `CentralStorage`: on the CPU. With `OneDevice`: "
              "on which of the GPUs that the process "
              "sees the layers with their variables are; `CPU` keeps the variables there and computes on the "
              "GPU."},
      If("type", strategy.type, {kParameterServer, kCentralStorage, kOneDevice}));
  field(
      "shard", strategy.shard,
      {.doc =
           "What is divided over the processes instead of being whole on each, as ZeRO does: `Optimizer` the "
           "optimizer's state, `Gradients` the gradients as well. On processors those of one machine share "
           "one copy of the state as it is; `Gradients` makes them exchange parts over Gloo instead. On GPUs "
           "each has its share."},
      mirrored);
  field("copyShards", strategy.copy_shards,
        {.doc = "Whether the next process, or machine, has a copy of each share of what is divided: one that "
                "is lost then costs a step at most, and not what came after the last checkpoint. Without, a "
                "share takes half the memory. On processors."},
        If("shard", strategy.shard, {Shard::kOptimizer, Shard::kGradients}));
  field("waitFor", strategy.wait_for,
        {.doc = "Gradients that are needed for an update; later ones are dropped. With `synchronous: true`.",
         .or_else = "one of every worker",
         .min = 1,
         .max = 1'000'000},
        served);
  field("synchronous", strategy.synchronous, {.doc = "Whether the workers wait for one another."}, served);
  field(
      "maxGradientAge", strategy.max_gradient_age,
      {.doc =
           "Updates after which a gradient is too old: it is dropped and counted. With `synchronous: false`.",
       .or_else = "no limit",
       .min = 0,
       .max = 1'000'000},
      served);
  field(
      "stages", strategy.stages,
      {.doc = "Which layers each stage has, a process each: ranges that follow one another. With a multiple "
              "of as many processes several pipelines divide the batch.",
       .or_else = "as `deviceMap` says",
       .min_items = 1,
       .max_items = 64},
      pipeline);
  field(
      "deviceMap", strategy.device_map,
      {.doc = "Where `stages` are not given: `Balanced` makes one for every process (or for every layer with "
              "variables, where there are fewer), of about the same measured time; `Sequential` fills "
              "devices with layers in their order, each up to `stageMemory`, and makes as few stages as that "
              "needs, of those that the processes make whole pipelines of. `lockstep run --dry-run` prints "
              "what comes of it."},
      pipeline);
  field("stageMemory", strategy.stage_memory,
        {.doc = "The most a stage may take for variables, gradients, optimizer state and activations. Where "
                "`stages` are not given.",
         .or_else = "no limit",
         .min = 1,
         .max = kMaxMemory,
         .bytes = true},
        pipeline);
  field("microBatches", strategy.micro_batches,
        {.doc = "Into how many parts a batch, or a pipeline's share of it, is cut.",
         .or_else = "four for every stage",
         .min = 1,
         .max = 1'000'000},
        pipeline);
  field("schedule", strategy.schedule,
        {.doc =
             "In which order a stage works off the parts: `GPipe` all forward, then all backward; "
             "`OneForwardOneBackward` backward as soon as it can, which keeps no more activations than there "
             "are stages."},
        pipeline);
  field("scaling", strategy.scaling,
        {.doc = "What an elastic job with fewer replicas than it asks for does: `KeepGlobalBatch` keeps "
                "batch and learning "
                "rate, each process takes more samples; `Linear` keeps the samples of a process, and the "
                "learning rate "
                "shrinks with the batch."});
}

template <class V>
void Describe(V& field, LayerPlacement& placement) {
  field("match", placement.match,
        {.doc = "A layer's name; `*` stands for any letters.",
         .required = true,
         .max_size = 100,
         .pattern = "^[A-Za-z0-9_./*-]+$",
         .shape = "a layer's name, with * for any letters"});
  field(
      "device", placement.device,
      {.doc = "The device, as TensorFlow writes it: `GPU:1`, `/gpu:1`, "
              "`/job:worker/replica:0/task:0/device:GPU:1`.",
       .required = true,
       .max_size = 100,
       .pattern = "^(/job:[a-z]+)?(/replica:[0-9]+)?(/task:[0-9]+)?/?(device:)?(CPU|GPU|cpu|gpu):[0-9]{1,4}$",
       .shape = "a device's name (\"GPU:1\", \"/gpu:1\", \"/job:worker/replica:0/task:0/device:GPU:1\")"});
}

template <class V>
void Describe(V& field, Placement& placement) {
  field("layers", *placement.layers,
        {.doc = "Rules, of which the first that matches a layer counts.", .required = true, .min_items = 1});
}

template <class V>
void Describe(V& field, Network& network) {
  field("interface", network.interface,
        {.doc = "The interface that the processes talk over; sets NCCL's and Gloo's.",
         .or_else = "the one of the rendezvous",
         .max_size = 15,
         .pattern = "^[^/: \\t\\r\\n]+$",
         .shape = "an interface's name (\"eth0\")"});
  field("rdma", network.rdma, {.doc = "Whether RDMA devices are asked for and used."});
}

template <class V>
void Describe(V& field, Http& http) {
  field("address", http.address,
        {.doc = "Where /metrics, /status and the page are served: an IP address.",
         .local = "127.0.0.1 unless given; in a pod all addresses.",
         .local_default = true,
         .max_size = 45,
         .pattern = "^([0-9]{1,3}([.][0-9]{1,3}){3}|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)$",
         .shape = "an IP address (\"127.0.0.1\", \"0.0.0.0\", \"::\")"});
  field("port", http.port,
        {.doc = "The port; 0 is any that is free, printed at the start.",
         .local = "0 unless given; in a pod 8080.",
         .min = 0,
         .max = 65'535,
         .local_default = true});
}

template <class V>
void Describe(V& field, ExitCodeRule& rule) {
  field("codes", rule.codes,
        {.doc = "Exit codes; 128 + n is signal n.",
         .or_else = "any",
         .min = 1,
         .max = 255,
         .min_items = 1,
         .max_items = 64,
         .distinct = true});
  field("reason", rule.reason,
        {.doc = "Why the process ended: `OOMKilled`.",
         .or_else = "any",
         .max_size = 63,
         .pattern = "^[A-Z][A-Za-z0-9]*$",
         .shape = "a reason in CamelCase (\"OOMKilled\")"});
  field("action", rule.action,
        {.doc = "`Restart` the job, `Fail` it, or `Ignore` that the process ended.", .required = true});
}

template <class V>
void Describe(V& field, RunPolicy& policy) {
  constexpr double kYears = 1e9;
  field("maxRestarts", policy.max_restarts,
        {.doc = "How often the processes are started again before the job has failed. Agents that run keep "
                "to the number that they began with.",
         .min = 0,
         .max = 1'000'000,
         .live = true});
  field("restartGracePeriodSeconds", policy.restart_grace_period,
        {.doc = "How long those survivors of a failure that cannot regroup may finish after SIGTERM before "
                "the restart kills them.",
         .min = 0,
         .max = kYears});
  field("terminationGracePeriodSeconds", policy.termination_grace_period,
        {.doc = "The time from SIGTERM to SIGKILL when the job is asked to stop.", .min = 0, .max = kYears});
  field("exitCodes", policy.exit_codes,
        {.doc = "What the end of a process means; the first rule that matches decides.",
         .or_else = "failures are restarted, but for the trainer's permanent ones",
         .max_items = 32});
  field("activeDeadlineSeconds", policy.active_deadline,
        {.doc = "The job fails when it has run this long.",
         .or_else = "never",
         .min = 1,
         .max = kYears,
         .live = true});
  field("scheduleTimeoutSeconds", policy.schedule_timeout,
        {.doc = "A job that is only partly scheduled after this long gives its pods back.",
         .local = "No effect.",
         .or_else = "never",
         .min = 1,
         .max = kYears,
         .live = true});
  field(
      "gang", policy.gang,
      {.doc = "Whose group the pods form, so that none gets a node before `minReplicas`, else all, can: "
              "`Coscheduling` a PodGroup of scheduler-plugins, `Volcano` one of Volcano, whose scheduler is "
              "then taken, `Workload` one of Kubernetes' own (scheduling.k8s.io/v1alpha2). Kueue needs none "
              "of them.",
       .local = "No effect."});
  field("ttlSecondsAfterFinished", policy.ttl_after_finished,
        {.doc = "A finished job is deleted after this long.",
         .local = "No effect.",
         .or_else = "never",
         .min = 0,
         .max = kYears,
         .live = true});
  field("cleanPodPolicy", policy.clean_pod_policy,
        {.doc = "Which pods of a finished job are deleted.", .local = "No effect.", .live = true});
  field("progressDeadlineSeconds", policy.progress_deadline,
        {.doc = "A job without a step for this long hangs and is restarted. Of a program that tells of no "
                "steps, once "
                "it has written something: without output.",
         .or_else = "20 median steps but at least 5 s for the trainer; never for a program without events",
         .min = 1,
         .max = kYears});
  field("minReplicas", policy.min_replicas,
        {.doc = "Elastic: with how many replicas the job goes on when the others do not come back in time.",
         .or_else = "all replicas",
         .min = 1,
         .max = 10'000});
}

template <class V>
void Describe(V& field, Launcher& launcher) {
  field("inject", *launcher.inject,
        {.doc = "Whether an init container puts the launcher into the user's image.", .local = "No effect."});
}

template <class V>
void Describe(V& field, Metadata& metadata) {
  field("name", metadata.job->name,
        {.doc = "The job's name.",
         .required = true,
         .max_size = 40,
         .pattern = "^[a-z]([a-z0-9-]*[a-z0-9])?$",
         .shape = "a name of RFC 1035 (small letters, digits and -; a letter first, no - last)"});
  field("namespace", metadata.job->namespace_name,
        {.doc = "The namespace in the cluster.",
         .local = "Only a label.",
         .max_size = 63,
         .pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
         .shape = "a namespace's name (small letters, digits and -, no - first or last)"});
  field("labels", metadata.job->labels,
        {.doc = "As in every Kubernetes object.",
         .local = "No effect.",
         .max_size = 63,
         .pattern = "^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$",
         .shape = "a label's value (letters, digits, -, _ and ., a letter or digit first and last)",
         .key_pattern = "^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"});
  field("annotations", metadata.job->annotations,
        {.doc = "As in every Kubernetes object.",
         .local = "No effect.",
         .key_pattern =
             "^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"});
  for (const std::string_view written_by_cluster :
       {"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generation",
        "managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid"}) {
    field.Ignored(written_by_cluster, "Written by the cluster; read over.");
  }
}

template <class V>
void Describe(V& field, Spec& spec) {
  const Manifest& manifest = spec.manifest;
  TrainingJob& job = *manifest.job;
  // Read first, since the fields of the short form depend on it.
  field("roles", *manifest.roles,
        {.doc = "The roles of the job. `replicas`, `processesPerReplica`, `devices` and `template` directly "
                "under `spec` "
                "are short for one role named worker; the two forms exclude each other.",
         .min_items = 1,
         .max_items = 4});
  DescribeRole(field, *manifest.worker, Without("roles", manifest.roles->empty()));
  field("trainer", job.trainer,
        {.doc = "Lockstep's own trainer and what it trains. Either this or `program`."});
  field("program", job.program, {.doc = "Any program, started once a process. Either this or `trainer`."},
        Without("trainer", !job.trainer.has_value()));
  const When trains = Without("program", !job.program.has_value());
  field("strategy", job.strategy,
        {.doc = "How the trainer's processes work together; a program has its own way."}, trains);
  Placement placement{&job.layer_placement};
  field("placement", placement, {.doc = "Places layers on devices by hand."},
        {.holds = trains.holds && field.Wants(!job.layer_placement.empty()), .field = trains.field});
  field("network", job.network, {.doc = "How the processes reach one another."});
  field("http", job.http, {.doc = "Where the launcher serves metrics, health and status."});
  field("runPolicy", job.run_policy, {.doc = "Restarts, deadlines, and what happens in the end."});
  field("suspend", job.suspend,
        {.doc = "Whether the job is held back, its pods given up.",
         .local = "Refused: there is nobody to resume it.",
         .live = true});
  Launcher launcher{&job.inject_launcher};
  field("launcher", launcher, {.doc = "How the launcher gets into a pod."});
}

template <class V>
void Describe(V& field, Manifest& manifest) {
  constexpr std::string_view kApiVersions[] = {kApiVersion};
  constexpr std::string_view kKinds[] = {kKind};
  std::string api_version = kApiVersion;
  std::string kind = kKind;
  field("apiVersion", api_version, {.doc = "The API's version.", .required = true, .words = kApiVersions});
  field("kind", kind, {.doc = "Documents of another kind are skipped.", .required = true, .words = kKinds});
  Metadata metadata{manifest.job};
  field("metadata", metadata, {.doc = "Name and labels.", .required = true});
  Spec spec{manifest};
  field("spec", spec, {.doc = "The job.", .required = true});
  field.Ignored("status", "Written by the operator; read over.");
}

}  // namespace lockstep::spec
