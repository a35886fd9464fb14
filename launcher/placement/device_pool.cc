#include "launcher/placement/device_pool.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "common/contract/environment.h"
#include "launcher/placement/text_files.h"

namespace lockstep::placement {
namespace {

std::string Label(int index, const std::string& uuid) {
  return "GPU " + std::to_string(index) + (uuid.empty() ? "" : " (" + uuid + ")");
}

std::vector<PoolDevice> DevicesOf(const Gpu& gpu) {
  PoolDevice whole{.id = gpu.uuid.empty() ? std::to_string(gpu.index) : gpu.uuid,
                   .label = Label(gpu.index, gpu.uuid),
                   .gpu_index = gpu.index,
                   .memory_bytes = gpu.memory_bytes,
                   .numa_node = gpu.numa_node,
                   .error = gpu.error};
  if (!gpu.mig) return {whole};
  std::vector<PoolDevice> devices;
  for (const MigSlice& slice : gpu.slices) {
    PoolDevice device = whole;
    device.id = slice.uuid;
    device.label = Label(gpu.index, slice.uuid);
    device.mig = true;
    device.memory_bytes = slice.memory_bytes;
    devices.push_back(std::move(device));
  }
  return devices;
}

bool IsUuid(std::string_view entry) { return entry.starts_with("GPU-") || entry.starts_with("MIG-"); }

// What an entry of an inherited CUDA_VISIBLE_DEVICES stands for, or why for nothing.
Result<std::vector<PoolDevice>> ResolveInherited(const Inventory& inventory, std::string_view entry) {
  std::vector<PoolDevice> found;
  if (const auto index = ParseInteger(entry)) {
    const auto gpu = std::find_if(inventory.gpus.begin(), inventory.gpus.end(),
                                  [&](const Gpu& candidate) { return candidate.index == *index; });
    if (gpu == inventory.gpus.end()) return NotFound("there is no such GPU");
    found = DevicesOf(*gpu);
  } else if (IsUuid(entry)) {
    int matches = 0;
    for (const Gpu& gpu : inventory.gpus) {
      if (!gpu.uuid.empty() && gpu.uuid.starts_with(entry)) {
        ++matches;
        found = DevicesOf(gpu);
        continue;
      }
      for (const PoolDevice& device : DevicesOf(gpu)) {
        if (!device.mig || !device.id.starts_with(entry)) continue;
        ++matches;
        found = {device};
      }
    }
    if (matches == 0) return NotFound("there is no such GPU");
    if (matches > 1) return InvalidArgument("it fits several GPUs");
  } else {
    return InvalidArgument("it is neither an index nor a UUID");
  }
  for (const PoolDevice& device : found) {
    if (!device.error.empty()) {
      return FailedPrecondition(device.label + " cannot be used (" + device.error + ")");
    }
  }
  if (found.empty()) return NotFound("that GPU is in MIG mode and has no slices");
  return found;
}

// Without an order of its own CUDA counts the fastest GPU first, and NVML does not.
bool OrderIsAmbiguous(const Inventory& inventory, const Environment& inherited) {
  const auto order = inherited.find(contract::kCudaDeviceOrder);
  if (order != inherited.end() && order->second == "PCI_BUS_ID") return false;
  return std::any_of(inventory.gpus.begin(), inventory.gpus.end(),
                     [&](const Gpu& gpu) { return gpu.name != inventory.gpus.front().name; });
}

DevicePool NarrowedPool(const Inventory& inventory, const Environment& inherited, const std::string& value) {
  DevicePool pool;
  const std::string said = std::string(contract::kCudaVisibleDevices) + "=" + value;
  if (Trim(value).empty()) {
    if (!inventory.gpus.empty()) pool.notices.push_back(said + " is set and empty, so no GPU is used");
    return pool;
  }
  std::set<std::string> seen;
  bool by_index = false;
  for (const std::string_view part : Split(value, ',')) {
    const std::string_view entry = Trim(part);
    by_index = by_index || ParseInteger(entry).has_value();
    const auto resolved = ResolveInherited(inventory, entry);
    std::string why = resolved.ok() ? "" : resolved.status().message();
    if (resolved.ok()) {
      for (const PoolDevice& device : *resolved) {
        if (!seen.insert(device.id).second) why = "it stands twice";
      }
    }
    if (!why.empty()) {
      pool.notices.push_back(said + ": \"" + std::string(entry) + "\" hides itself and all after it: " + why);
      break;
    }
    pool.devices.insert(pool.devices.end(), resolved->begin(), resolved->end());
  }
  if (by_index && OrderIsAmbiguous(inventory, inherited)) {
    pool.notices.push_back(
        said + " is read in the order of PCI_BUS_ID; the GPUs here differ, so name them by UUID or set " +
        contract::kCudaDeviceOrder);
  }
  return pool;
}

// The pool's device that an entry of `visible` names; empty: none, and `why` says so.
std::optional<PoolDevice> Resolve(const DevicePool& pool, std::string_view entry, std::string& why) {
  std::vector<PoolDevice> matches;
  if (const auto index = ParseInteger(entry)) {
    if (*index >= 0 && *index < static_cast<int64_t>(pool.devices.size())) {
      matches.push_back(pool.devices[static_cast<size_t>(*index)]);
    }
  } else if (IsUuid(entry)) {
    std::copy_if(pool.devices.begin(), pool.devices.end(), std::back_inserter(matches),
                 [&](const PoolDevice& device) { return device.id.starts_with(entry); });
  }
  const std::string quoted = "\"" + std::string(entry) + "\"";
  if (matches.empty()) {
    why = "there is no device " + quoted + "; there is " + ListDevices(pool.devices);
  } else if (matches.size() > 1) {
    why = quoted + " fits " + ListDevices(matches) + "; write more of the UUID";
  } else if (!matches.front().error.empty()) {
    why = quoted + " is " + matches.front().label + ", which cannot be used (" + matches.front().error + ")";
  } else {
    return matches.front();
  }
  return std::nullopt;
}

}  // namespace

std::string PoolDevice::name() const { return ParseInteger(id) ? "GPU:" + id : id; }

std::string ListDevices(const std::vector<PoolDevice>& devices) {
  std::string text;
  for (const PoolDevice& device : devices) text += (text.empty() ? "" : ", ") + device.label;
  return text.empty() ? "no GPU" : text;
}

DevicePool MakePool(const Inventory& inventory, const Environment& inherited) {
  const auto value = inherited.find(contract::kCudaVisibleDevices);
  if (value != inherited.end()) return NarrowedPool(inventory, inherited, value->second);
  DevicePool pool;
  for (const Gpu& gpu : inventory.gpus) {
    const auto devices = DevicesOf(gpu);
    pool.devices.insert(pool.devices.end(), devices.begin(), devices.end());
  }
  return pool;
}

Result<std::vector<PoolDevice>> ChooseVisible(const DevicePool& pool, const std::vector<std::string>& visible,
                                              bool soft, const std::string& field,
                                              std::vector<std::string>& notices) {
  std::vector<PoolDevice> chosen;
  if (visible.empty()) {
    for (const PoolDevice& device : pool.devices) {
      if (device.error.empty()) {
        chosen.push_back(device);
      } else {
        notices.push_back(device.label + " is left out: " + device.error);
      }
    }
    return chosen;
  }
  for (const std::string& entry : visible) {
    std::string why;
    const auto device = Resolve(pool, Trim(entry), why);
    if (!device) {
      if (!soft) return FailedPrecondition(field + ": " + why);
      notices.push_back(field + ": " + why + "; left out (softPlacement)");
      continue;
    }
    const bool twice = std::any_of(chosen.begin(), chosen.end(),
                                   [&](const PoolDevice& other) { return other.id == device->id; });
    if (twice)
      return InvalidArgument(field + ": " + device->label + " is named twice; devices.virtual divides a GPU");
    chosen.push_back(*device);
  }
  return chosen;
}

}  // namespace lockstep::placement
