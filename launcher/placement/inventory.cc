#include "launcher/placement/inventory.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace lockstep::placement {

int PhysicalCores(const Inventory& inventory) {
  std::set<int> cores;
  for (const Cpu& cpu : inventory.cpus) cores.insert(cpu.core);
  return std::max(1, static_cast<int>(cores.size()));
}

int UsableCores(const Inventory& inventory) {
  const int cores = PhysicalCores(inventory);
  if (!inventory.cpu_quota || *inventory.cpu_quota >= cores) return cores;
  return std::max(1, static_cast<int>(std::floor(*inventory.cpu_quota)));
}

bool QuotaIsTight(const Inventory& inventory) {
  return inventory.cpu_quota && *inventory.cpu_quota < static_cast<double>(inventory.cpus.size());
}

int64_t UsableMemory(const Inventory& inventory) {
  if (!inventory.memory_limit) return inventory.memory_bytes;
  if (inventory.memory_bytes == 0) return *inventory.memory_limit;
  return std::min(inventory.memory_bytes, *inventory.memory_limit);
}

}  // namespace lockstep::placement
