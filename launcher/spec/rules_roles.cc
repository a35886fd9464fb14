#include <algorithm>
#include <set>

#include "launcher/spec/enums.h"
#include "launcher/spec/quote.h"
#include "launcher/spec/rules.h"

namespace lockstep::spec {

namespace {

void CheckDevices(const TrainingJob& job, const Devices& devices, const std::string& path,
                  std::vector<Finding>* findings) {
  const DeviceMemory& memory = devices.memory;
  const std::string type = path + ".type";
  if (devices.type == DeviceType::kTpu && job.trainer) {
    findings->push_back(
        {type, "TPU is for programs only; the trainer has GPU, CPU and Auto", {"spec.trainer"}});
  }
  if (devices.type == DeviceType::kTpu && !job.trainer) {
    if (devices.accelerator.empty()) {
      findings->push_back({path + ".accelerator",
                           "is missing; type TPU needs it, for example accelerator: tpu-v5-lite-podslice",
                           {type}});
    }
    if (devices.topology.empty()) {
      findings->push_back(
          {path + ".topology", "is missing; type TPU needs it, for example topology: 2x4", {type}});
    }
  }
  if (devices.type == DeviceType::kCpu) {
    if (!devices.visible.empty()) {
      findings->push_back({path + ".visible",
                           "chooses among devices, but type is CPU; leave it out, or set type: GPU",
                           {type}});
    }
    if (memory.policy != MemoryPolicy::kGrowth) {
      findings->push_back(
          {path + ".memory.policy",
           std::string(Name(memory.policy)) + " is about a GPU's memory, but type is CPU; leave it out",
           {type}});
    }
    if (devices.virtual_devices && devices.virtual_devices->memory_limit) {
      findings->push_back(
          {path + ".virtual.memoryLimit", "is about a GPU's memory, but type is CPU; leave it out", {type}});
    }
  }
  if (memory.policy == MemoryPolicy::kLimit && !memory.limit) {
    findings->push_back({path + ".memory.limit",
                         "is missing; policy Limit needs it, for example limit: 4Gi",
                         {path + ".memory.policy"}});
  }
  if (memory.policy == MemoryPolicy::kFraction && !memory.fraction) {
    findings->push_back({path + ".memory.fraction",
                         "is missing; policy Fraction needs it, for example fraction: 0.5",
                         {path + ".memory.policy"}});
  }
  const bool bounded = memory.policy == MemoryPolicy::kLimit || memory.policy == MemoryPolicy::kFraction;
  if (memory.enforce == MemoryEnforcement::kMps && !bounded) {
    findings->push_back({path + ".memory.enforce",
                         "MPS holds a process to a limit, and policy " + std::string(Name(memory.policy)) +
                             " sets none; set policy: Limit or Fraction, or enforce: None",
                         {path + ".memory.policy"}});
  }
  if (bounded && devices.virtual_devices && devices.virtual_devices->memory_limit) {
    findings->push_back({path + ".memory.policy",
                         std::string(Name(memory.policy)) +
                             " and virtual.memoryLimit both bound a device's memory; keep one of them",
                         {path + ".virtual.memoryLimit"}});
  }
}

}  // namespace

std::string PathOfRole(const TrainingJob& job, size_t index) {
  const bool short_form = job.roles.size() == 1 && job.roles[0].name == "worker" && !job.roles[0].program;
  return short_form ? "spec" : PathTo("spec.roles", index);
}

const Role* WorkerOf(const TrainingJob& job) {
  const auto worker = std::find_if(job.roles.begin(), job.roles.end(),
                                   [](const Role& role) { return role.name == "worker"; });
  return worker == job.roles.end() ? nullptr : &*worker;
}

std::string PathOfWorker(const TrainingJob& job) {
  const Role* worker = WorkerOf(job);
  return worker == nullptr ? "spec" : PathOfRole(job, static_cast<size_t>(worker - job.roles.data()));
}

void CheckRoles(const TrainingJob& job, std::vector<Finding>* findings) {
  std::set<std::string> names;
  for (size_t i = 0; i < job.roles.size(); ++i) {
    const Role& role = job.roles[i];
    const std::string path = PathOfRole(job, i);
    if (!names.insert(role.name).second) {
      findings->push_back({path + ".name",
                           "there is a role " + Quoted(role.name) + " before; raise its replicas instead",
                           {}});
    }
    if ((role.name == "evaluator" || role.name == "chief") && role.replicas > 1) {
      findings->push_back(
          {path + ".replicas", "there is one " + role.name + "; set replicas: 1", {path + ".name"}});
    }
    if (job.trainer && role.name == "chief") {
      findings->push_back(
          {path + ".name",
           "chief is a program's, TensorFlow's; the trainer has workers, the first of which leads",
           {"spec.trainer"}});
    }
    if (job.trainer && role.program && role.name != "evaluator") {
      findings->push_back({path + ".program",
                           "the role " + role.name + " runs the trainer; leave it out, or spec.trainer",
                           {"spec.trainer"}});
    }
    CheckDevices(job, role.devices, path + ".devices", findings);
  }
  if (WorkerOf(job) == nullptr) {
    findings->push_back({"spec.roles", "no role is a worker; add {name: worker}", {}});
  }
}

}  // namespace lockstep::spec
