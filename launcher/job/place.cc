#include "launcher/job/place.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/contract/environment.h"
#include "launcher/process/exec_child.h"

namespace lockstep::job {

namespace {

// Of the world around a process. LOCAL_RANK is its place, and so is all that is not named here.
constexpr std::array<std::string_view, 16> kOfTheWorld = {
    contract::kRank,           contract::kWorldSize,     contract::kLocalWorldSize, contract::kGroupRank,
    contract::kGroupWorldSize, contract::kMasterAddress, contract::kMasterPort,     contract::kGeneration,
    contract::kIncarnation,    contract::kRun,           contract::kRoleRank,       contract::kRoleSize,
    contract::kRoles,          contract::kStoreAddress,  contract::kTraceFile,      "TF_CONFIG"};
// The frameworks' names for the same (placement/framework_environment.cc).
constexpr std::array<std::string_view, 14> kOfTheWorldToFrameworks = {"ROLE_RANK",
                                                                      "ROLE_WORLD_SIZE",
                                                                      "TORCHELASTIC_RESTART_COUNT",
                                                                      "JAX_COORDINATOR_ADDRESS",
                                                                      "JAX_NUM_PROCESSES",
                                                                      "JAX_PROCESS_ID",
                                                                      "HOROVOD_RANK",
                                                                      "HOROVOD_SIZE",
                                                                      "HOROVOD_LOCAL_SIZE",
                                                                      "HOROVOD_CROSS_RANK",
                                                                      "HOROVOD_CROSS_SIZE",
                                                                      "OMPI_COMM_WORLD_RANK",
                                                                      "OMPI_COMM_WORLD_SIZE",
                                                                      "OMPI_COMM_WORLD_LOCAL_SIZE"};

bool IsOfTheWorld(std::string_view name) {
  const auto is_it = [name](std::string_view other) { return other == name; };
  return std::any_of(kOfTheWorld.begin(), kOfTheWorld.end(), is_it) ||
         std::any_of(kOfTheWorldToFrameworks.begin(), kOfTheWorldToFrameworks.end(), is_it);
}

std::map<std::string_view, std::string_view> OfThePlace(const process::Launch& launch) {
  std::map<std::string_view, std::string_view> variables;
  for (const auto& [name, value] : launch.environment) {
    if (!IsOfTheWorld(name)) variables[name] = value;
  }
  return variables;
}

}  // namespace

bool SamePlace(const process::Launch& before, const process::Launch& after) {
  return before.local_rank == after.local_rank && before.role == after.role &&
         before.own_trainer == after.own_trainer && before.command == after.command &&
         before.working_directory == after.working_directory && before.cpus == after.cpus &&
         OfThePlace(before) == OfThePlace(after);
}

std::map<std::string, std::string> ContractEnvironment(const placement::ProcessPlan& plan) {
  std::map<std::string, std::string> variables(plan.changed.begin(), plan.changed.end());
  for (const std::string& name : plan.from_manifest) variables.erase(name);
  for (const auto& [name, file] : plan.from_files) variables.erase(name);
  variables[contract::kEventsFd] = std::to_string(process::kEventsFdInChild);
  variables[contract::kControlFd] = std::to_string(process::kControlFdInChild);
  return variables;
}

}  // namespace lockstep::job
