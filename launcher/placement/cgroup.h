#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace lockstep::placement {

// What the cgroups of this process grant it, over all levels that can be seen from here.
struct CgroupLimits {
  std::optional<double> cpu_quota;         // CPUs' worth of time; the tightest; empty: none
  std::optional<int64_t> memory_limit;     // bytes; the tightest; empty: none
  std::optional<std::vector<int>> cpuset;  // logical CPUs; empty: not known
};

// Reads ROOT/proc/self/{cgroup,mountinfo} and the hierarchies they name: v1, v2, or both at once. What cannot
// be read limits nothing.
CgroupLimits ReadCgroupLimits(const std::filesystem::path& root);

}  // namespace lockstep::placement
