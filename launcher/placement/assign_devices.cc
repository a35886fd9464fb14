#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "launcher/placement/assign.h"
#include "launcher/placement/cpu_shares.h"
#include "launcher/placement/device_choice.h"
#include "launcher/placement/device_pool.h"
#include "launcher/placement/memory_share.h"
#include "launcher/placement/role_view.h"
#include "launcher/spec/roles.h"

namespace lockstep::placement {
namespace {

using spec::DeviceType;
using spec::Framework;
using spec::Visibility;

// The largest number of processes up to `most` over which the trainer's batch comes out even, so that the
// default never fails where a choice was free.
int EvenForBatch(const spec::TrainingJob& job, const spec::Role& role, int most) {
  const bool divided = job.trainer && job.strategy.type != spec::StrategyType::kParameterServer;
  const int64_t batch = divided ? job.trainer->batch_size : 0;
  if (batch <= 0) return most;
  int count = most;
  while (count > 1 && batch % (static_cast<int64_t>(count) * std::max(1, role.replicas)) != 0) --count;
  return count;
}

// Of the others one process is enough unless the manifest says more.
bool IsWorker(const RoleView& view) { return view.role->name == "worker"; }

int DefaultCpuProcesses(const spec::TrainingJob& job, const RoleView& view, const Inventory& inventory,
                        std::vector<std::string>& notices) {
  const spec::Devices& devices = view.role->devices;
  // TensorFlow and OneDevice: one process. Virtual devices divide the CPU, which is one device (and stands in
  // for as many GPUs as were named).
  if (view.framework() == Framework::kTensorFlow || !IsWorker(view)) return 1;
  const bool trainer = view.program == nullptr;
  if (trainer && job.strategy.type == spec::StrategyType::kOneDevice) return 1;
  if (devices.virtual_devices) {
    return PerDevice(devices) * std::max(1, static_cast<int>(devices.visible.size()));
  }
  const int cores = UsableCores(inventory);
  if (!trainer) return cores;
  const int even = EvenForBatch(job, *view.role, cores);
  if (even < cores) {
    AddNotice(notices, std::to_string(even) + " processes on " + std::to_string(cores) +
                           " cores: over more, spec.trainer.batchSize " +
                           std::to_string(job.trainer->batch_size) + " does not come out even");
  }
  return even;
}

// The processes that nobody gave a number of: one a slot, but for what is one process by nature.
int DefaultGpuProcesses(const spec::TrainingJob& job, const RoleView& view, int slots, Visibility visibility,
                        std::vector<std::string>& notices) {
  if (view.framework() == Framework::kTensorFlow && visibility == Visibility::kPerReplica) return 1;
  if (!IsWorker(view)) return 1;
  if (view.program != nullptr) return slots;
  if (job.strategy.type == spec::StrategyType::kOneDevice) return 1;
  const int even = EvenForBatch(job, *view.role, slots);
  if (even < slots) {
    AddNotice(notices, std::to_string(even) + " processes for " + std::to_string(slots) +
                           " devices: over more, spec.trainer.batchSize " +
                           std::to_string(job.trainer->batch_size) + " does not come out even");
  }
  return even;
}

Result<int> CountGpuProcesses(const spec::TrainingJob& job, const RoleView& view, const DeviceChoice& choice,
                              Visibility visibility, std::vector<std::string>& notices) {
  const int per_device = PerDevice(view.role->devices);
  const auto gpus = static_cast<int>(choice.gpus.size());
  const int slots = gpus * per_device;
  if (!view.role->processes_per_replica) return DefaultGpuProcesses(job, view, slots, visibility, notices);
  const int wanted = *view.role->processes_per_replica;
  if (wanted <= slots) return wanted;
  return InvalidArgument(view.field + "processesPerReplica: " + std::to_string(wanted) + " processes for " +
                         (per_device > 1 ? std::to_string(slots) + " virtual devices on " : "") +
                         ListDevices(choice.gpus) + "; at most " + std::to_string(slots) +
                         ", or set devices.virtual.perDevice to " +
                         std::to_string((wanted + gpus - 1) / gpus));
}

// Which of `gpus` process `index` of `count` computes on. `one_each`: never more than one, as our trainer has
// it unless it spreads its layers.
std::vector<PoolDevice> OwnGpus(const std::vector<PoolDevice>& gpus, size_t index, size_t count,
                                Visibility visibility, bool one_each) {
  const size_t total = gpus.size();
  if (visibility == Visibility::kPerReplica) {
    // A single process has them all; of several, each picks by set_device(LOCAL_RANK % count of devices).
    if (count == 1 && !one_each) return gpus;
    return {gpus[index % total]};
  }
  // A process sees one MIG slice at most, and it cannot be given half of an odd device.
  if (count <= total && total % count == 0 && !HasSlices(gpus) && !one_each) {
    const size_t each = total / count;
    const auto first = gpus.begin() + static_cast<std::ptrdiff_t>(index * each);
    return {first, first + static_cast<std::ptrdiff_t>(each)};
  }
  return {gpus[count <= total ? index : index * total / count]};
}

std::vector<std::string> Names(const std::vector<PoolDevice>& gpus) {
  std::vector<std::string> names;
  for (const PoolDevice& gpu : gpus) names.push_back(gpu.name());
  return names;
}

std::vector<std::string> Ids(const std::vector<PoolDevice>& gpus) {
  std::vector<std::string> ids;
  for (const PoolDevice& gpu : gpus) ids.push_back(gpu.id);
  return ids;
}

int CommonNode(const std::vector<PoolDevice>& gpus) {
  if (gpus.empty()) return -1;
  const int node = gpus.front().numa_node;
  return std::all_of(gpus.begin(), gpus.end(), [&](const PoolDevice& gpu) { return gpu.numa_node == node; })
             ? node
             : -1;
}

// Fills in the GPUs of `assignment.processes`, which are there already.
Status GiveGpus(const RoleView& view, const DeviceChoice& choice, const DeviceRequest& request,
                DeviceAssignment& assignment, std::vector<int>& nodes) {
  const size_t count = assignment.processes.size();
  const bool one_each = view.program == nullptr && !view.spreads_layers;
  std::vector<std::vector<PoolDevice>> own(count);
  std::map<std::string, int> sharers;  // by device
  std::map<int, int> on_gpu;           // by physical GPU
  for (size_t i = 0; i < count; ++i) {
    own[i] = OwnGpus(choice.gpus, i, count, assignment.visibility, one_each);
    std::set<int> physical;
    for (const PoolDevice& gpu : own[i]) {
      ++sharers[gpu.id];
      physical.insert(gpu.gpu_index);
    }
    for (const int gpu : physical) ++on_gpu[gpu];
  }
  if (sharers.size() < choice.gpus.size()) {
    AddNotice(assignment.notices, std::to_string(choice.gpus.size() - sharers.size()) + " of " +
                                      std::to_string(choice.gpus.size()) + " devices stay idle: " +
                                      (view.role->processes_per_replica
                                           ? view.field + "processesPerReplica is " + std::to_string(count)
                                           : "there are " + std::to_string(count) + " processes"));
  }
  assignment.shared_gpus =
      std::any_of(on_gpu.begin(), on_gpu.end(), [](const auto& entry) { return entry.second > 1; });
  const bool take_turns =
      std::any_of(sharers.begin(), sharers.end(), [](const auto& entry) { return entry.second > 1; });
  const bool own_mps = view.role->devices.memory.enforce == spec::MemoryEnforcement::kMps;
  if (take_turns && !request.inventory.mps && !(own_mps && request.mps_control)) {
    AddNotice(assignment.notices, "several processes share a GPU without MPS: they take turns on it");
  }
  for (size_t i = 0; i < count; ++i) {
    ProcessDevices& process = assignment.processes[i];
    process.type = DeviceType::kGpu;
    process.shared = std::any_of(own[i].begin(), own[i].end(),
                                 [&](const PoolDevice& gpu) { return on_gpu[gpu.gpu_index] > 1; });
    process.devices = Names(own[i]);
    process.visible = Ids(assignment.visibility == Visibility::kPerReplica ? choice.gpus : own[i]);
    nodes[i] = CommonNode(own[i]);
    int most = 1;
    for (const PoolDevice& gpu : own[i]) most = std::max(most, sharers[gpu.id]);
    auto memory = ShareMemory({.devices = view.role->devices,
                               .own = own[i],
                               .sharers = most,
                               .mps_control = request.mps_control,
                               .divided = assignment.visibility == Visibility::kPerProcess,
                               .field = view.field},
                              assignment.notices);
    if (!memory.ok()) return memory.status();
    process.memory = *memory;
  }
  return Status();
}

// `devices.virtual` and `crossDeviceOps: NCCL` speak of GPUs. `devices.type: CPU` together with
// virtual.perDevice divides the CPU, as TensorFlow's logical CPUs do.
Status CheckCpu(const spec::TrainingJob& job, const RoleView& view, DeviceAssignment& assignment) {
  const spec::Devices& devices = view.role->devices;
  if (devices.virtual_devices && devices.type != DeviceType::kCpu) {
    const std::string why = view.field + "devices.virtual: there is no GPU to divide";
    if (!devices.soft_placement) {
      return FailedPrecondition(why + "; set devices.type: CPU to divide the CPU, or softPlacement: true");
    }
    AddNotice(assignment.notices,
              why + "; the CPU is divided" +
                  (devices.virtual_devices->memory_limit ? ", and memoryLimit is not held there" : "") +
                  " (softPlacement)");
  }
  if (job.trainer && job.strategy.cross_device_ops == spec::CrossDeviceOps::kNccl) {
    const std::string why =
        "spec.strategy.crossDeviceOps: NCCL sums on GPUs, and the processes run on the CPU";
    if (!devices.soft_placement) {
      return FailedPrecondition(why + "; use Auto, SharedMemory or Gloo, or set devices.softPlacement: true");
    }
    AddNotice(assignment.notices, why + "; it is Auto (softPlacement)");
    assignment.cross_device_ops = spec::CrossDeviceOps::kAuto;
  }
  return Status();
}

void GiveCpu(DeviceAssignment& assignment) {
  for (ProcessDevices& process : assignment.processes) {
    process.devices = {"CPU:" + std::to_string(process.local_rank)};
  }
}

void GiveCores(const DeviceRequest& request, const std::vector<int>& nodes, DeviceAssignment& assignment) {
  const std::vector<CpuShare> shares = ShareCpus(request.inventory, nodes);
  const int even = UsableCores(request.inventory) / static_cast<int>(shares.size());
  for (size_t i = 0; i < shares.size(); ++i) {
    ProcessDevices& process = assignment.processes[i];
    process.cpus = shares[i].cpus;
    process.numa_node = shares[i].node;
    process.threads = std::max(1, shares[i].cores > 0 ? std::min(even, shares[i].cores) : even);
  }
}

// One process has all TPUs of its machine, as libtpu's users expect it.
DeviceAssignment GiveTpus(const RoleView& view, const DeviceRequest& request, DeviceAssignment assignment) {
  assignment.type = DeviceType::kTpu;
  assignment.physical_devices = assignment.logical_devices = spec::TpuChipsOf(*view.role);
  assignment.processes.resize(1);
  ProcessDevices& process = assignment.processes.front();
  process.type = DeviceType::kTpu;
  for (int chip = 0; chip < assignment.physical_devices; ++chip) {
    process.devices.push_back("TPU:" + std::to_string(chip));
  }
  GiveCores(request, {-1}, assignment);
  return assignment;
}

}  // namespace

bool NeedsGpus(const spec::TrainingJob& job, const std::string& role) {
  return std::any_of(job.roles.begin(), job.roles.end(), [&](const spec::Role& candidate) {
    const DeviceType type = candidate.devices.type;
    return (role.empty() || candidate.name == role) &&
           (type == DeviceType::kAuto || type == DeviceType::kGpu);
  });
}

spec::TrainingJob Resolved(const spec::TrainingJob& job, const DeviceAssignment& assignment) {
  spec::TrainingJob resolved = job;
  if (assignment.cross_device_ops) resolved.strategy.cross_device_ops = *assignment.cross_device_ops;
  return resolved;
}

Result<DeviceAssignment> AssignDevices(const spec::TrainingJob& job, const DeviceRequest& request) {
  const auto view = FindRole(job, request.role);
  if (!view.ok()) return view.status();
  DeviceAssignment assignment{.role = request.role};
  auto choice = ChooseDevices(*view, request, assignment.notices);
  if (!choice.ok()) return choice.status();

  if (view->role->devices.type == DeviceType::kTpu) return GiveTpus(*view, request, std::move(assignment));
  const bool gpu = !choice->gpus.empty();
  const std::optional<int> given = view->role->processes_per_replica;
  if (given && *given < 1) return InvalidArgument(view->field + "processesPerReplica: at least 1");
  int count = 0;
  if (gpu) {
    assignment.type = DeviceType::kGpu;
    assignment.visibility = ChooseVisibility(*view, *choice, assignment.notices);
    const auto counted = CountGpuProcesses(job, *view, *choice, assignment.visibility, assignment.notices);
    if (!counted.ok()) return counted.status();
    count = *counted;
    assignment.physical_devices = choice->physical_gpus;
    assignment.logical_devices = static_cast<int>(choice->gpus.size()) * PerDevice(view->role->devices);
  } else {
    LOCKSTEP_RETURN_IF_ERROR(CheckCpu(job, *view, assignment));
    count = given ? *given : DefaultCpuProcesses(job, *view, request.inventory, assignment.notices);
    assignment.physical_devices = 1;
    assignment.logical_devices = count;
  }

  assignment.processes.resize(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) assignment.processes[static_cast<size_t>(i)].local_rank = i;
  std::vector<int> nodes(static_cast<size_t>(count), -1);
  if (gpu) {
    LOCKSTEP_RETURN_IF_ERROR(GiveGpus(*view, *choice, request, assignment, nodes));
  } else {
    GiveCpu(assignment);
  }
  GiveCores(request, nodes, assignment);
  return assignment;
}

Result<std::vector<DeviceAssignment>> AssignRoles(const spec::TrainingJob& job,
                                                  const DeviceRequest& request) {
  std::vector<DeviceAssignment> assignments;
  std::map<std::string, std::set<std::string>> users;  // of a device: its roles
  int count = 0;
  for (size_t i = 0; i < job.roles.size(); ++i) {
    spec::TrainingJob gathered = job;
    spec::Role& role = gathered.roles[i];
    if (role.replicas > 1) {
      role.processes_per_replica = role.replicas * role.processes_per_replica.value_or(1);
      role.replicas = 1;
    }
    DeviceRequest its = request;
    its.role = role.name;
    auto assignment = AssignDevices(gathered, its);
    if (!assignment.ok()) return assignment.status();
    for (ProcessDevices& process : assignment->processes) {
      process.local_rank = count++;
      for (const std::string& device : process.devices) users[device].insert(role.name);
    }
    assignments.push_back(std::move(*assignment));
  }
  if (assignments.size() < 2) return assignments;
  const int threads = std::max(1, UsableCores(request.inventory) / std::max(1, count));
  for (DeviceAssignment& assignment : assignments) {
    for (ProcessDevices& process : assignment.processes) {
      process.cpus.clear();
      process.numa_node = -1;
      process.threads = threads;
      if (process.type != DeviceType::kGpu) {
        process.devices = {"CPU:" + std::to_string(process.local_rank)};
        continue;
      }
      const bool others = std::any_of(process.devices.begin(), process.devices.end(),
                                      [&](const auto& device) { return users[device].size() > 1; });
      process.shared = process.shared || others;
      assignment.shared_gpus = assignment.shared_gpus || others;
      if (others) {
        AddNotice(assignment.notices,
                  "several roles are on the same GPUs; devices of each role choose others");
      }
    }
  }
  return assignments;
}

DeviceAssignment Gathered(const std::vector<DeviceAssignment>& assignments) {
  DeviceAssignment all = assignments.front();
  for (size_t i = 1; i < assignments.size(); ++i) {
    const DeviceAssignment& each = assignments[i];
    all.processes.insert(all.processes.end(), each.processes.begin(), each.processes.end());
    if (each.type == DeviceType::kGpu) all.type = each.type;
    all.physical_devices = std::max(all.physical_devices, each.physical_devices);
    all.logical_devices += each.logical_devices;
    if (!all.cross_device_ops) all.cross_device_ops = each.cross_device_ops;
    all.shared_gpus = all.shared_gpus || each.shared_gpus;
    for (const std::string& notice : each.notices) AddNotice(all.notices, notice);
  }
  return all;
}

}  // namespace lockstep::placement
