#include "launcher/placement/device_choice.h"

#include <algorithm>
#include <utility>

namespace lockstep::placement {

using spec::DeviceType;
using spec::Framework;
using spec::Visibility;

int PerDevice(const spec::Devices& devices) {
  return devices.virtual_devices ? std::max(1, devices.virtual_devices->per_device) : 1;
}

bool HasSlices(const std::vector<PoolDevice>& gpus) {
  return std::any_of(gpus.begin(), gpus.end(), [](const PoolDevice& gpu) { return gpu.mig; });
}

Result<DeviceChoice> ChooseDevices(const RoleView& view, const DeviceRequest& request,
                                   std::vector<std::string>& notices) {
  const spec::Devices& devices = view.role->devices;
  const std::string field = view.field + "devices.type";
  if (devices.type == DeviceType::kTpu) {
    if (request.tpus) return DeviceChoice{};
    return FailedPrecondition(
        field + ": TPUs are used in a cluster's pods only (kubectl apply); here use GPU, CPU or Auto");
  }
  if (devices.type == DeviceType::kCpu) {
    if (!devices.visible.empty()) {
      AddNotice(notices, view.field + "devices.visible names GPUs and the type is CPU");
    }
    return DeviceChoice{};
  }
  const bool trainer = view.program == nullptr;
  const bool must = devices.type == DeviceType::kGpu;
  DevicePool pool = MakePool(request.inventory, request.inherited);
  for (std::string& notice : pool.notices) AddNotice(notices, std::move(notice));
  auto chosen =
      ChooseVisible(pool, devices.visible, devices.soft_placement, view.field + "devices.visible", notices);
  if (!chosen.ok()) return chosen.status();
  DeviceChoice choice{.gpus = std::move(*chosen)};
  std::erase_if(choice.gpus, [&](const PoolDevice& device) {
    const auto failed = request.left_out.find(device.gpu_index);
    if (failed == request.left_out.end()) return false;
    AddNotice(notices, device.label + " is left out: " + failed->second);
    return true;
  });
  for (const PoolDevice& device : pool.devices) {
    choice.physical_gpus += device.error.empty() && !request.left_out.contains(device.gpu_index) ? 1 : 0;
  }

  std::string why;
  if (choice.gpus.empty()) {
    why = "this machine has " + ListDevices(choice.gpus);
    for (const std::string& note : request.inventory.notes) why += "; " + note;
  } else if (trainer && request.cuda_plugin.empty()) {
    why = std::string("Lockstep's trainer computes on GPUs with ") + kCudaPluginFile +
          ", which is not installed beside lockstep-trainer";
  } else {
    return choice;
  }
  if (must && !devices.soft_placement) {
    return FailedPrecondition(field + ": GPU is asked for, and " + why +
                              "; use CPU or Auto, or set softPlacement: true");
  }
  if (must) {
    AddNotice(notices, field + ": GPU is asked for, and " + why + "; the CPU is used (softPlacement)");
  } else if (trainer && (!choice.gpus.empty() || !request.inventory.notes.empty())) {
    AddNotice(notices, field + ": Auto is the CPU here: " + why);
  }
  return DeviceChoice{};
}

// The default is by framework (docs/manifest.md), but shared GPUs and MIG slices are always handed out one by
// one: a script that picks by LOCAL_RANK would find fewer devices than ranks, and CUDA shows a process one
// slice only.
Visibility ChooseVisibility(const RoleView& view, const DeviceChoice& choice,
                            std::vector<std::string>& notices) {
  const spec::Devices& devices = view.role->devices;
  const bool slices = HasSlices(choice.gpus);
  if (devices.visibility) {
    if (slices && *devices.visibility == Visibility::kPerReplica) {
      AddNotice(
          notices,
          view.field + "devices.visibility: CUDA shows a process one MIG slice only, so each sees its own");
      return Visibility::kPerProcess;
    }
    return *devices.visibility;
  }
  switch (view.framework()) {
    case Framework::kTensorFlow: {
      // It mirrors inside one process; several of them would each take all of every GPU's memory.
      const bool several = view.role->processes_per_replica.value_or(1) > 1;
      return slices || several ? Visibility::kPerProcess : Visibility::kPerReplica;
    }
    case Framework::kPyTorch:
    case Framework::kHorovod:
    case Framework::kMpi:
      return slices || PerDevice(devices) > 1 ? Visibility::kPerProcess : Visibility::kPerReplica;
    case Framework::kNone:
      if (view.spreads_layers && !slices && PerDevice(devices) == 1) return Visibility::kPerReplica;
      break;
    case Framework::kJax:
      break;
  }
  return Visibility::kPerProcess;
}

}  // namespace lockstep::placement
