#pragma once

#include <string>
#include <vector>

#include "launcher/placement/assign.h"
#include "launcher/placement/inventory.h"

// Text for people and for programs. Pure. All texts end with a newline.
namespace lockstep::placement {

// `lockstep devices`: a table of CPUs, memory and GPUs, and the notes.
std::string RenderInventoryTable(const Inventory& inventory);

// `lockstep devices -o json`.
std::string RenderInventoryJson(const Inventory& inventory);

enum class PlanFormat { kYaml, kJson };

// `lockstep run --dry-run`: each process's devices, CPUs, command and the variables that Lockstep or the
// manifest set (the inherited ones are left out). Values of spec.program.environment whose names speak of a
// secret (TOKEN, PASSWORD, KEY …) are shown as "(hidden)"; the path of the job's token file is shown.
// `device_map`: which layers are where, as JSON; empty for a job whose processes all have the whole model.
std::string RenderPlan(const Plan& plan, PlanFormat format, const std::string& device_map = "");

// "2 physical GPUs, 4 logical GPUs": what this machine has, and what the manifest made of those it chose.
std::string CountDevices(const Plan& plan);

// spec.devices.logPlacement: a line for each process. Lines without newlines.
std::vector<std::string> DescribePlacement(const Plan& plan);

}  // namespace lockstep::placement
