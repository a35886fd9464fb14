#include "trainer/collectives/local/cores.h"

#include <sched.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <string>

namespace lockstep::trainer::collectives {

void ReadAffinity(std::span<uint64_t, kCpuMaskWords> mask) {
  std::fill(mask.begin(), mask.end(), 0);
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) {
    mask[0] = ~uint64_t{0};
    return;
  }
  for (int cpu = 0; cpu < std::min(CPU_SETSIZE, kCpuMaskWords * 64); ++cpu) {
    if (CPU_ISSET(cpu, &set)) mask[static_cast<size_t>(cpu / 64)] |= uint64_t{1} << (cpu % 64);
  }
}

int CgroupCores() {
  std::string quota;
  double period = 0;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); !(v2 >> quota >> period)) {
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota;
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  }
  if (quota.empty() || quota == "max" || quota[0] == '-' || period <= 0) return INT_MAX;
  return std::max(1, static_cast<int>(std::strtod(quota.c_str(), nullptr) / period));
}

}  // namespace lockstep::trainer::collectives
