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
  int index = 0;  // among the processes of its assignment
  int rank = 0;
  int world_size = 1;
  int local_size = 1;  // processes of this machine
  int machine = 0;     // among those that take part
  int machines = 1;
  int role_rank = 0;  // among the processes of its role
  int role_size = 1;
  int role_first_rank = 0;  // the rank of the role's first process, and where that is
  std::string role_address = {};
};

// How the framework's processes find each other: TF_CONFIG, TORCHELASTIC_*, JAX_*, …
void AddFrameworkVariables(const ProcessContext& context, EnvironmentBuilder& environment);

// How libtpu finds the machines of its slice. Nothing for a process without TPUs.
void AddTpuVariables(const ProcessContext& context, EnvironmentBuilder& environment);

// spec.devices.memory as far as the framework can be told through its environment; a notice for what it
// can't. Nothing for a process on the CPU.
void AddMemoryVariables(const ProcessContext& context, EnvironmentBuilder& environment,
                        std::vector<std::string>& notices);

}  // namespace lockstep::placement
