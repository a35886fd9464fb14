#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "launcher/placement/assign.h"

// Machines and jobs for the tables of these tests.
namespace lockstep::placement::testing {

inline constexpr int64_t kGiB = int64_t{1} << 30;

// `nodes` NUMA nodes of `cores` cores with `threads` hyperthreads, numbered as Linux does: all first threads
// first.
inline Inventory Machine(int nodes, int cores, int threads = 1) {
  Inventory inventory;
  for (int thread = 0; thread < threads; ++thread) {
    for (int core = 0; core < nodes * cores; ++core) {
      inventory.cpus.push_back({.id = thread * nodes * cores + core, .core = core, .node = core / cores});
    }
  }
  inventory.memory_bytes = 64 * kGiB;
  return inventory;
}

inline std::string Uuid(int index) {
  return "GPU-" + std::string(8, static_cast<char>('a' + index)) + "-1111-2222-3333-444444444444";
}

inline std::string SliceUuid(int index) {
  return "MIG-" + std::string(8, static_cast<char>('a' + index)) + "-5555-6666-7777-888888888888";
}

// Two nodes of four cores, the GPUs on both in equal parts.
inline Inventory GpuMachine(int gpus, int64_t memory = 80 * kGiB) {
  Inventory inventory = Machine(2, 4);
  inventory.driver_version = "580.65.06";
  for (int i = 0; i < gpus; ++i) {
    inventory.gpus.push_back({.index = i,
                              .uuid = Uuid(i),
                              .name = "NVIDIA H100 80GB HBM3",
                              .memory_bytes = memory,
                              .numa_node = gpus < 2 ? 0 : i / ((gpus + 1) / 2)});
  }
  return inventory;
}

// One GPU in MIG mode with `slices` slices, and a whole one after it.
inline Inventory MigMachine(int slices) {
  Inventory inventory = GpuMachine(2, 40 * kGiB);
  inventory.gpus[0].mig = true;
  for (int i = 0; i < slices; ++i) {
    inventory.gpus[0].slices.push_back(
        {.uuid = SliceUuid(i), .name = "MIG 1g.5gb", .memory_bytes = 5 * kGiB});
  }
  return inventory;
}

inline spec::TrainingJob ProgramJob(spec::Framework framework) {
  spec::TrainingJob job;
  job.name = "mnist";
  job.roles.resize(1);
  job.program.emplace();
  job.program->framework = framework;
  job.program->command = {"python3", "train.py"};
  return job;
}

inline spec::TrainingJob TrainerJob(int64_t batch_size = 256) {
  spec::TrainingJob job;
  job.name = "mnist";
  job.roles.resize(1);
  job.trainer.emplace();
  job.trainer->batch_size = batch_size;
  return job;
}

inline GenerationFacts Facts() {
  GenerationFacts facts;
  facts.master_address = "127.0.0.1";
  facts.master_port = 29500;
  facts.store_address = "127.0.0.1:4000";
  facts.token_file = "/run/token";
  facts.trainer_program = "/usr/bin/lockstep-trainer";
  facts.trainer_config = "/run/job.json";
  return facts;
}

// The value of a variable; "<absent>" when it is not set.
inline std::string Value(const Variables& variables, const std::string& name) {
  const auto found = std::find_if(variables.begin(), variables.end(),
                                  [&](const auto& variable) { return variable.first == name; });
  return found == variables.end() ? "<absent>" : found->second;
}

inline std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace lockstep::placement::testing
