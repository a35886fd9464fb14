#pragma once

#include <vector>

#include "launcher/placement/inventory.h"

namespace lockstep::placement {

struct CpuShare {
  std::vector<int> cpus = {};  // logical ids, ascending; empty: not bound
  int node = -1;               // the NUMA node of all of them; -1: several, or not bound
  int cores = 0;               // physical cores in `cpus`
};

// Divides the machine's CPUs over processes; `nodes[i]` is the NUMA node of process i's GPU, -1 where it has
// none or that is not known. A process is bound only where this cannot cost: see the source file for the
// rules.
std::vector<CpuShare> ShareCpus(const Inventory& inventory, const std::vector<int>& nodes);

}  // namespace lockstep::placement
