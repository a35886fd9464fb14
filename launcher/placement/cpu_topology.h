#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launcher/placement/inventory.h"

namespace lockstep::placement {

// The CPUs of ROOT that the process's affinity mask allows, with core and node, by id. `cpuset` narrows them
// further where it is given. Empty when ROOT/proc/self/status cannot be read.
std::vector<Cpu> ReadCpus(const std::filesystem::path& root, const std::optional<std::vector<int>>& cpuset);

struct CpuModel {
  std::string name;
  std::vector<std::string> features;  // those that matter for arithmetic, as /proc/cpuinfo names them
};

// Of the first CPU in ROOT/proc/cpuinfo; empty fields where it says nothing.
CpuModel ReadCpuModel(const std::filesystem::path& root);

// MemTotal of ROOT/proc/meminfo in bytes; 0: not known.
int64_t ReadMemoryTotal(const std::filesystem::path& root);

}  // namespace lockstep::placement
