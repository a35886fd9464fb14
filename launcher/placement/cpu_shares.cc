#include "launcher/placement/cpu_shares.h"

#include <algorithm>
#include <map>

// When to bind, and why:
//
// - One process alone may use the whole machine, unless it has a GPU: then it keeps to the GPU's node, so
// that
//   its buffers do not cross between the sockets.
// - Under a quota below the number of CPUs the machine is shared with strangers who see the same CPU numbers.
// If all
//   were bound from CPU 0 up they would crowd on the same cores while others idle, so the kernel decides.
//   Only the node of a process's GPU is still worth keeping to, as a whole.
// - On one NUMA node the processes get equal and disjoint sets of cores where these come out even. Memory is
// equally
//   far from all cores, so all there is to win is that threads do not wander, and an uneven division would
//   make the slowest process the pace of all. Together the shares cover all cores: two jobs side by side load
//   them evenly.
// - Over several nodes each process keeps to one, since a thread on the other node's memory is slower by
// half: the
//   node of its GPU, or in blocks, neighbours together. Within a node cores are divided while there are
//   enough.
// - Fewer processes than nodes: whole nodes each, where these come out even.
//
// A core goes to one process with all of its hyperthreads.
namespace lockstep::placement {
namespace {

using Cores = std::map<int, std::vector<int>>;  // core: its usable logical CPUs

CpuShare ToShare(const std::vector<std::vector<int>>& cores, size_t first, size_t last, int node) {
  CpuShare share{.node = node, .cores = static_cast<int>(last - first)};
  for (size_t i = first; i < last; ++i) share.cpus.insert(share.cpus.end(), cores[i].begin(), cores[i].end());
  std::sort(share.cpus.begin(), share.cpus.end());
  return share;
}

std::vector<std::vector<int>> Flatten(const Cores& cores) {
  std::vector<std::vector<int>> flat;
  for (const auto& [core, cpus] : cores) flat.push_back(cpus);
  return flat;
}

std::vector<CpuShare> ShareOneNode(const std::vector<std::vector<int>>& cores, size_t processes, int node) {
  std::vector<CpuShare> shares(processes);
  if (cores.size() % processes != 0) return shares;
  const size_t each = cores.size() / processes;
  for (size_t i = 0; i < processes; ++i) shares[i] = ToShare(cores, i * each, (i + 1) * each, node);
  return shares;
}

// Fewer processes than nodes.
std::vector<CpuShare> ShareWholeNodes(const std::map<int, Cores>& nodes, size_t processes) {
  std::vector<CpuShare> shares(processes);
  if (nodes.size() % processes != 0) return shares;
  const size_t each = nodes.size() / processes;
  size_t index = 0;
  for (const auto& [node, cores] : nodes) {
    CpuShare& share = shares[index++ / each];
    const auto flat = Flatten(cores);
    const CpuShare whole = ToShare(flat, 0, flat.size(), node);
    share.cpus.insert(share.cpus.end(), whole.cpus.begin(), whole.cpus.end());
    std::sort(share.cpus.begin(), share.cpus.end());
    share.cores += whole.cores;
    share.node = each == 1 ? node : -1;
  }
  return shares;
}

// Each process on its home node; -1: stays unbound.
std::vector<CpuShare> ShareHomes(const std::map<int, Cores>& nodes, const std::vector<int>& homes,
                                 bool divide) {
  std::vector<CpuShare> shares(homes.size());
  for (const auto& [node, cores] : nodes) {
    const auto flat = Flatten(cores);
    const auto guests = static_cast<size_t>(std::count(homes.begin(), homes.end(), node));
    size_t guest = 0;
    for (size_t i = 0; i < homes.size(); ++i) {
      if (homes[i] != node) continue;
      const bool split = divide && guests <= flat.size();
      const size_t first = split ? guest * flat.size() / guests : 0;
      const size_t last = split ? (guest + 1) * flat.size() / guests : flat.size();
      shares[i] = ToShare(flat, first, last, node);
      ++guest;
    }
  }
  return shares;
}

}  // namespace

std::vector<CpuShare> ShareCpus(const Inventory& inventory, const std::vector<int>& nodes) {
  std::map<int, Cores> machine;
  for (const Cpu& cpu : inventory.cpus) machine[cpu.node][cpu.core].push_back(cpu.id);
  const size_t processes = nodes.size();
  if (processes == 0 || machine.empty()) return std::vector<CpuShare>(processes);

  const bool tight = QuotaIsTight(inventory);
  if (machine.size() == 1) {
    if (tight || processes == 1) return std::vector<CpuShare>(processes);
    return ShareOneNode(Flatten(machine.begin()->second), processes, machine.begin()->first);
  }
  std::vector<int> homes = nodes;
  for (int& home : homes) home = machine.contains(home) ? home : -1;
  if (std::any_of(homes.begin(), homes.end(), [](int home) { return home >= 0; })) {
    return ShareHomes(machine, homes, !tight);
  }
  if (tight || processes == 1) return std::vector<CpuShare>(processes);
  if (processes < machine.size()) return ShareWholeNodes(machine, processes);
  std::vector<int> ids;
  for (const auto& [node, cores] : machine) ids.push_back(node);
  for (size_t i = 0; i < processes; ++i) homes[i] = ids[i * ids.size() / processes];
  return ShareHomes(machine, homes, true);
}

}  // namespace lockstep::placement
