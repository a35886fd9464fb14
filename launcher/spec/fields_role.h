#pragma once

#include <utility>

#include "launcher/spec/fields.h"

// The fields of a role, its devices and its program. See fields.h.
namespace lockstep::spec {

template <class V>
void Describe(V& field, VirtualDevices& devices) {
  field("perDevice", devices.per_device,
        {.doc = "How many virtual devices each device is divided into.", .min = 1, .max = 1024});
  field("memoryLimit", devices.memory_limit,
        {.doc = "Memory of each virtual device.",
         .or_else = "an equal part of the device",
         .min = 1,
         .max = kMaxMemory,
         .bytes = true});
}

template <class V>
void Describe(V& field, DeviceMemory& memory) {
  field("policy", memory.policy,
        {.doc = "How a process takes a device's memory: `Growth` as it needs it, `Preallocate` all at once, "
                "`Limit` at "
                "most `limit`, `Fraction` at most `fraction` of the device."});
  field("limit", memory.limit,
        {.doc = "The most a process may take of each device.", .min = 1, .max = kMaxMemory, .bytes = true},
        If("policy", memory.policy, {MemoryPolicy::kLimit}));
  field("fraction", memory.fraction,
        {.doc = "The part of each device a process may take.", .min = 0, .max = 1, .above_min = true},
        If("policy", memory.policy, {MemoryPolicy::kFraction}));
  field(
      "enforce", memory.enforce,
      {.doc =
           "Who holds a process to its limit: `None` its framework, `MPS` NVIDIA's multi-process service."});
}

template <class V>
void Describe(V& field, Devices& devices) {
  field("type", devices.type,
        {.doc = "What the processes compute on. `Auto` takes GPUs where there are any and else the CPU; "
                "`TPU` is for "
                "programs in a cluster only."});
  field("accelerator", devices.accelerator,
        {.doc = "Which TPUs, as GKE labels its nodes (`cloud.google.com/gke-tpu-accelerator`): "
                "`tpu-v5-lite-podslice`.",
         .or_else = "none",
         .max_size = 63,
         .pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
         .shape = "small letters, digits and - (tpu-v5-lite-podslice)"},
        If("type", devices.type, {DeviceType::kTpu}));
  field(
      "topology", devices.topology,
      {.doc = "The slice's chips along each axis, as GKE labels its nodes "
              "(`cloud.google.com/gke-tpu-topology`): `2x4`. The role's replicas share them evenly, one for "
              "each of the slice's machines.",
       .or_else = "none",
       .max_size = 20,
       .pattern = "^[1-9][0-9]{0,3}x[1-9][0-9]{0,3}(x[1-9][0-9]{0,3})?$",
       .shape = "numbers with x between (2x4, 2x2x2)"},
      If("type", devices.type, {DeviceType::kTpu}));
  field("visible", devices.visible,
        {.doc = "The devices to use, in this order: indices, or `GPU-…` or `MIG-…` UUIDs (their beginning is "
                "enough). "
                "Indices count within an inherited `CUDA_VISIBLE_DEVICES`.",
         .or_else = "all",
         .min_items = 1,
         .distinct = true,
         .max_size = 100,
         .pattern = "^(0|[1-9][0-9]{0,3}|(GPU|MIG)-[0-9A-Za-z/-]+)$",
         .shape = "an index (\"0\") or a UUID (\"GPU-…\", \"MIG-…\")"});
  field("visibility", devices.visibility,
        {.doc = "Whether a process sees its own devices only (`PerProcess`) or those of its whole replica, "
                "to pick one "
                "by `LOCAL_RANK` (`PerReplica`).",
         .or_else = "by framework: PerProcess for the trainer and JAX, else PerReplica"});
  field("virtual", devices.virtual_devices, {.doc = "Divides every device into several."});
  field("memory", devices.memory, {.doc = "How much of a device's memory a process takes, and when."});
  field("softPlacement", devices.soft_placement,
        {.doc = "Whether what a device cannot do, or a device that is not there, falls back to the CPU (or "
                "to Float32) "
                "instead of failing."});
  field("logPlacement", devices.log_placement,
        {.doc = "Whether every process says which device it computes on."});
}

// One variable of env, as in a pod.
template <class V>
void Describe(V& field, std::pair<std::string, std::string>& variable) {
  field("name", variable.first,
        {.doc = "The variable.",
         .required = true,
         .max_size = 253,
         .pattern = "^[A-Za-z_][A-Za-z0-9_]*$",
         .shape = "a variable's name (letters, digits and _, no digit first)"});
  field("value", variable.second, {.doc = "Its value."});
}

struct ProgressReport {
  std::optional<std::string>* log_pattern;
};

template <class V>
void Describe(V& field, ProgressReport& progress) {
  field(
      "logPattern", *progress.log_pattern,
      {.doc =
           "A regular expression (RE2) for lines of output, with the named group `step`, the steps done, and "
           "if there are any `total`, the steps to do, `epoch`, `samples`, those seen so far, and `loss`: "
           "`'step (?<step>\\d+).*loss (?<loss>[0-9.]+)'`. A count that starts over in each epoch is added "
           "up.",
       .required = true,
       .max_size = 1024});
}

template <class V>
void Describe(V& field, Program& program) {
  field("framework", program.framework,
        {.doc =
             "Which framework's environment the processes get beside the common one; see docs/contract.md."});
  field("command", program.command,
        {.doc = "The program and its arguments; no shell reads them. Every process runs it.",
         .required = true,
         .min_items = 1,
         .max_items = 4096});
  field("prepare", program.prepare,
        {.doc = "A program that is run once on every machine before the processes start, and not when they "
                "restart: to fetch data, say. Jobs of one user that want the same at once do it once. It may "
                "fail as often as a process may.",
         .or_else = "nothing is run",
         .min_items = 1,
         .max_items = 4096});
  field("env", program.environment,
        {.doc = "Variables of the processes' environment, in addition to the launcher's own environment."});
  field("envFiles", program.environment_files,
        {.doc = "Files with more of them, a `NAME=VALUE` a line, read when the processes start. A later file "
                "counts more than one before, and `env` more than any; see docs/programs.md.",
         .or_else = "none",
         .max_items = 16,
         .distinct = true,
         .max_size = kMaxPath});
  field("workingDir", program.working_directory,
        {.doc = "The folder the processes start in.", .or_else = "the launcher's", .max_size = kMaxPath});
  ProgressReport progress{&program.progress_log_pattern};
  field("progress", progress, {.doc = "How to see a program's progress that writes no events."},
        {.holds = field.Wants(program.progress_log_pattern.has_value())});
}

// What `spec` itself may hold for its one role, too.
template <class V>
void DescribeRole(V& field, Role& role, const When& when = {}) {
  field("replicas", role.replicas,
        {.doc = "How many launchers: pods in a cluster, machines elsewhere.",
         .local = "With more than one, every machine runs `lockstep run` with its `--replica`.",
         .min = 1,
         .max = 10'000},
        when);
  field("processesPerReplica", role.processes_per_replica,
        {.doc = "How many processes each launcher starts.",
         .or_else = "one per device that the policy yields",
         .min = 1,
         .max = 1024},
        when);
  field("devices", role.devices, {.doc = "Which devices the processes get, and how."}, when);
  field.Object(
      "template", role.pod_template_json,
      {.doc = "A PodTemplateSpec that the pods are made from: image, resources, volumes, tolerations.",
       .local = "No effect."},
      when);
}

template <class V>
void Describe(V& field, Role& role) {
  field("name", role.name, {.doc = "The role.", .required = true, .words = kRoles});
  DescribeRole(field, role);
  field("program", role.program, {.doc = "What this role runs, instead of what the job does."});
}

}  // namespace lockstep::spec
