#pragma once

#include <map>
#include <string>

#include "launcher/placement/assign.h"
#include "launcher/process/child_process.h"

// What of a process stays the same for as long as it lives. Pure.
namespace lockstep::job {

// Whether the process that was started as `before` can go on as `after` without being started anew: the same
// program in the same role, with the same devices, memory and processors. Who takes part beside it, under
// which ranks and addresses, may differ.
bool SamePlace(const process::Launch& before, const process::Launch& after);

// All that the launcher sets for a process: its environment without what it has from the launcher's own and
// from the manifest.
std::map<std::string, std::string> ContractEnvironment(const placement::ProcessPlan& plan);

}  // namespace lockstep::job
