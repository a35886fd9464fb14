#pragma once

#include <string>
#include <vector>

#include "launcher/placement/assign.h"
#include "launcher/placement/environment_builder.h"
#include "launcher/placement/role_view.h"

namespace lockstep::placement {

// All that a framework's variables are made of, for one process.
struct ProcessContext {
  const spec::TrainingJob& job;
  const RoleView& view;
  const DeviceAssignment& assignment;
  const GenerationFacts& facts;
  const ProcessDevices& process;
  int rank = 0;
  int world_size = 1;
  int role_rank = 0;  // among the processes of its role
  int role_size = 1;
};

// How the framework's processes find each other: TF_CONFIG, TORCHELASTIC_*, JAX_*, …
void AddFrameworkVariables(const ProcessContext& context, EnvironmentBuilder& environment,
                           std::vector<std::string>& notices);

// spec.devices.memory as far as the framework can be told through its environment; a notice for what it
// can't. Nothing for a process on the CPU.
void AddMemoryVariables(const ProcessContext& context, EnvironmentBuilder& environment,
                        std::vector<std::string>& notices);

}  // namespace lockstep::placement
