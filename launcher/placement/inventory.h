#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// Placement: what a machine has (inventory.h, read by discover.h), which of it each process gets and what
// stands in the process's environment (assign.h), and how that is shown (render.h). Used by the job, which
// runs it, and by the command line, which prints it.
//
// Only discover.{h,cc} and what it uses (cgroup, cpu_topology, nvidia, nvml_library) touch the machine. The
// rest takes values and returns values, so that every rule can be tested without a GPU and `--dry-run` prints
// exactly what a run would do.
namespace lockstep::placement {

// A logical CPU that this process may use.
struct Cpu {
  int id = 0;
  int core = 0;  // of the physical core: the lowest logical id on it, usable or not
  int node = 0;  // NUMA node
};

// A slice of a GPU in MIG mode. A process can be given one of them, never two.
struct MigSlice {
  std::string uuid = {};  // "MIG-…"
  std::string name = {};  // "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
  int64_t memory_bytes = 0;
};

struct Gpu {
  int index = 0;          // as nvidia-smi counts: by PCI bus id
  std::string uuid = {};  // "GPU-…"; empty: not known
  std::string name = {};
  int64_t memory_bytes = 0;
  std::string pci_bus_id = {};  // as in /sys: "0000:3b:00.0"; empty: not known
  int numa_node = -1;           // -1: not known
  bool mig = false;             // in MIG mode: only its slices can be used
  std::vector<MigSlice> slices = {};
  std::string error = {};  // why it cannot be used ("GPU is lost"); empty: it can
};

// One machine, as far as this process may use it.
struct Inventory {
  std::vector<Cpu> cpus = {};       // by id
  std::optional<double> cpu_quota;  // CPUs' worth of time that the cgroups grant; empty: no quota
  std::string cpu_model = {};
  std::vector<std::string> cpu_features = {};  // those that matter for arithmetic, in /proc/cpuinfo's words
  int64_t memory_bytes = 0;                    // of the machine
  std::optional<int64_t> memory_limit;         // the tightest of the cgroups, bytes; empty: none
  std::vector<Gpu> gpus = {};                  // by index, those in trouble included
  std::string driver_version = {};             // NVIDIA's; empty: no driver
  bool mps = false;                            // an MPS control daemon's pipe is there
  std::vector<std::string> notes = {};         // "no NVIDIA driver (…)"
};

// How many threads of arithmetic run well here: the usable physical cores, at most the quota rounded down, at
// least one. (Two hyperthreads share one set of vector units: matrix products gain nothing from the second.)
int UsableCores(const Inventory& inventory);

// Usable physical cores without regard to a quota.
int PhysicalCores(const Inventory& inventory);

// The quota grants less than the CPUs in the affinity mask, so these are shared with strangers.
bool QuotaIsTight(const Inventory& inventory);

// The bytes that may be used: the limit of the cgroups or the machine's memory, whichever is less.
int64_t UsableMemory(const Inventory& inventory);

}  // namespace lockstep::placement
