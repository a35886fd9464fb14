#include "launcher/placement/environment_builder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/contract/environment.h"

namespace lockstep::placement {
namespace {

// Open MPI and its runtime, PMI of MPICH and Slurm, MVAPICH, Intel MPI, Slurm, torchrun, Horovod. What this
// launcher sets itself (contract::IsReserved) comes on top.
constexpr std::array<std::string_view, 11> kStalePrefixes = {
    "OMPI_",  "PMIX_",     "PRTE_",  "PMI_",     "MV2_COMM_WORLD_", "HYDI_",
    "HYDRA_", "MPI_LOCAL", "SLURM_", "HOROVOD_", "TORCHELASTIC_"};

constexpr std::array<std::string_view, 9> kStaleNames = {
    "NODE_RANK",         "ROLE_RANK",      "ROLE_NAME",
    "ROLE_WORLD_SIZE",   "TF_CONFIG",      "JAX_COORDINATOR_ADDRESS",
    "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_LOCAL_DEVICE_IDS"};

std::string Advice(std::string_view name) {
  if (name == contract::kCudaVisibleDevices) return "; use spec.devices.visible";
  if (name == contract::kCheckpointDirectory) return "; use spec.trainer.checkpoint.directory";
  if (name.find("MEM") != std::string_view::npos || name.find("ALLOC") != std::string_view::npos) {
    return "; use spec.devices.memory";
  }
  return "; leave it out";
}

}  // namespace

bool IsStale(std::string_view name) {
  return contract::IsReserved(name) ||
         std::find(kStaleNames.begin(), kStaleNames.end(), name) != kStaleNames.end() ||
         std::any_of(kStalePrefixes.begin(), kStalePrefixes.end(),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

EnvironmentBuilder::EnvironmentBuilder(const Environment& inherited, const Variables& from_manifest,
                                       const std::vector<FileVariable>& from_files)
    : from_manifest_(from_manifest), from_files_(from_files) {
  for (const auto& given : from_manifest) {
    std::erase_if(from_files_, [&](const FileVariable& variable) { return variable.name == given.first; });
  }
  for (const auto& [name, value] : inherited) {
    if (!IsStale(name)) inherited_.emplace(name, value);
  }
}

void EnvironmentBuilder::Set(std::string_view name, std::string value) {
  if (!own_.insert(std::string(name)).second) {
    std::erase_if(set_, [name](const auto& variable) { return variable.first == name; });
  }
  set_.emplace_back(name, std::move(value));
}

void EnvironmentBuilder::SetDefault(std::string_view name, std::string value) {
  if (SetByUser(name) || own_.contains(name)) return;
  std::erase_if(set_, [name](const auto& variable) { return variable.first == name; });
  set_.emplace_back(name, std::move(value));
}

void EnvironmentBuilder::Remove(std::string_view name) { removed_.emplace(name); }

bool EnvironmentBuilder::SetByUser(std::string_view name) const {
  return inherited_.contains(std::string(name)) ||
         std::any_of(from_manifest_.begin(), from_manifest_.end(),
                     [name](const auto& variable) { return variable.first == name; }) ||
         std::any_of(from_files_.begin(), from_files_.end(),
                     [name](const FileVariable& variable) { return variable.name == name; });
}

Status EnvironmentBuilder::CheckName(const std::string& where, std::string_view name) const {
  if (own_.contains(name) || contract::IsReserved(name)) {
    return InvalidArgument(where + ": " + std::string(name) + " is set by Lockstep" + Advice(name));
  }
  if (removed_.contains(name)) {
    return InvalidArgument(where + ": " + std::string(name) + " contradicts what Lockstep sets" +
                           Advice(name));
  }
  return Status();
}

Status EnvironmentBuilder::CheckManifest(const std::string& field) const {
  std::set<std::string> seen;
  for (const auto& [name, value] : from_manifest_) {
    if (name.empty() || name.find('=') != std::string::npos || name.find('\0') != std::string::npos) {
      return InvalidArgument(field + ": \"" + name + "\" is not the name of a variable");
    }
    if (value.find('\0') != std::string::npos) {
      return InvalidArgument(field + ": the value of " + name + " holds a zero byte");
    }
    if (!seen.insert(name).second) return InvalidArgument(field + ": " + name + " is set twice");
    LOCKSTEP_RETURN_IF_ERROR(CheckName(field, name));
  }
  return Status();
}

Status EnvironmentBuilder::Build(const std::string& field, ProcessPlan& plan) const {
  LOCKSTEP_RETURN_IF_ERROR(CheckManifest(field));
  plan.changed = set_;
  plan.from_files.clear();
  for (const FileVariable& variable : from_files_) {
    LOCKSTEP_RETURN_IF_ERROR(CheckName(variable.file + ":" + std::to_string(variable.line), variable.name));
    plan.changed.emplace_back(variable.name, variable.value);
    plan.from_files[variable.name] = variable.file;
  }
  plan.changed.insert(plan.changed.end(), from_manifest_.begin(), from_manifest_.end());
  plan.from_manifest.clear();
  for (const auto& [name, value] : from_manifest_) plan.from_manifest.push_back(name);

  std::set<std::string_view> changed;
  for (const auto& [name, value] : plan.changed) changed.insert(name);
  plan.environment.clear();
  for (const auto& [name, value] : inherited_) {
    if (!changed.contains(name) && !removed_.contains(name)) plan.environment.emplace_back(name, value);
  }
  plan.environment.insert(plan.environment.end(), plan.changed.begin(), plan.changed.end());
  return Status();
}

}  // namespace lockstep::placement
