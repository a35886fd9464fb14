#include "launcher/placement/discover.h"

#include <system_error>
#include <utility>

#include "common/contract/environment.h"
#include "launcher/placement/cgroup.h"
#include "launcher/placement/cpu_topology.h"
#include "launcher/placement/nvml_library.h"
#include "launcher/placement/text_files.h"

namespace lockstep::placement {
namespace {

namespace fs = std::filesystem;

void ReadSlices(const NvmlLibrary& nvml, NvmlLibrary::Device device, Gpu& gpu) {
  const int most = nvml.MaxMigSlices(device);
  for (int index = 0; index < most; ++index) {
    const auto handle = nvml.MigSlice(device, index);
    if (!handle) continue;
    const auto uuid = nvml.Uuid(*handle);
    if (!uuid.ok()) continue;
    MigSlice slice{.uuid = *uuid};
    if (auto name = nvml.Name(*handle); name.ok()) slice.name = std::move(*name);
    if (const auto memory = nvml.MemoryInfo(*handle); memory.ok()) slice.memory_bytes = memory->total;
    gpu.slices.push_back(std::move(slice));
  }
}

Gpu ReadGpu(const NvmlLibrary& nvml, int index, const fs::path& root) {
  Gpu gpu{.index = index};
  const auto handle = nvml.DeviceByIndex(index);
  if (!handle.ok()) {
    gpu.error = handle.status().message();
    return gpu;
  }
  if (auto uuid = nvml.Uuid(*handle); uuid.ok()) gpu.uuid = std::move(*uuid);
  if (auto name = nvml.Name(*handle); name.ok()) gpu.name = std::move(*name);
  // A GPU that fell off the bus can still hand out a handle and its name, but not its memory. Not being told
  // is no fault: a GPU that shares the host's memory has none of its own, and a container that was given a
  // MIG slice has no permission on the whole.
  const auto memory = nvml.MemoryInfo(*handle);
  if (memory.ok()) {
    gpu.memory_bytes = memory->total;
  } else if (memory.status().code() == StatusCode::kFailedPrecondition) {
    gpu.error = memory.status().message();
  }
  if (auto bus_id = nvml.PciBusId(*handle); bus_id.ok()) {
    gpu.pci_bus_id = std::move(*bus_id);
    // -1 in the file: the machine has one node, or the firmware does not say.
    const auto node = ReadInteger(root / "sys/bus/pci/devices" / gpu.pci_bus_id / "numa_node");
    gpu.numa_node = static_cast<int>(node.value_or(-1));
  }
  gpu.mig = nvml.MigMode(*handle);
  if (gpu.mig) ReadSlices(nvml, *handle, gpu);
  return gpu;
}

void ReadGpus(const DiscoverOptions& options, Inventory& inventory) {
  const auto nvml = NvmlLibrary::Open(options.nvml_library);
  if (!nvml.ok()) {
    const bool absent = nvml.status().code() == StatusCode::kNotFound;
    inventory.notes.push_back("no NVIDIA driver (" +
                              (absent ? options.nvml_library + " not found" : nvml.status().message()) + ")");
    return;
  }
  if (auto version = nvml->DriverVersion(); version.ok()) inventory.driver_version = std::move(*version);
  const auto count = nvml->DeviceCount();
  if (!count.ok()) {
    inventory.notes.push_back("the NVIDIA driver names no GPUs (" + count.status().message() + ")");
    return;
  }
  if (*count == 0) inventory.notes.push_back("the NVIDIA driver knows no GPU");
  for (int index = 0; index < *count; ++index) {
    inventory.gpus.push_back(ReadGpu(*nvml, index, options.root));
    const Gpu& gpu = inventory.gpus.back();
    const std::string name = "GPU " + std::to_string(index);
    if (!gpu.error.empty()) inventory.notes.push_back(name + " cannot be used (" + gpu.error + ")");
    if (gpu.mig && gpu.slices.empty()) inventory.notes.push_back(name + " is in MIG mode and has no slices");
  }
}

}  // namespace

DiscoverOptions DiscoverOptionsFrom(const std::map<std::string, std::string>& environment, bool gpus) {
  DiscoverOptions options{.gpus = gpus};
  const auto given = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  if (const std::string library = given(contract::kNvmlLibrary); !library.empty()) {
    options.nvml_library = library;
  }
  if (const std::string pipes = given("CUDA_MPS_PIPE_DIRECTORY"); !pipes.empty()) {
    options.mps_pipe_directory = pipes;
  }
  return options;
}

Inventory Discover(const DiscoverOptions& options) {
  Inventory inventory;
  const CgroupLimits limits = ReadCgroupLimits(options.root);
  inventory.cpus = ReadCpus(options.root, limits.cpuset);
  if (inventory.cpus.empty()) {
    inventory.notes.push_back("the usable CPUs cannot be read from /proc/self/status; one is assumed");
    inventory.cpus.push_back({});
  }
  inventory.cpu_quota = limits.cpu_quota;
  inventory.memory_limit = limits.memory_limit;
  inventory.memory_bytes = ReadMemoryTotal(options.root);
  CpuModel model = ReadCpuModel(options.root);
  inventory.cpu_model = std::move(model.name);
  inventory.cpu_features = std::move(model.features);
  if (options.gpus) ReadGpus(options, inventory);
  std::error_code ignored;
  inventory.mps = !inventory.gpus.empty() && fs::exists(options.mps_pipe_directory / "control", ignored);
  return inventory;
}

}  // namespace lockstep::placement
