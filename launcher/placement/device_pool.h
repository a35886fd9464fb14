#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "launcher/placement/assign.h"
#include "launcher/placement/inventory.h"

namespace lockstep::placement {

// A GPU, or one MIG slice of one, as something to hand to a process.
struct PoolDevice {
  std::string id = {};     // as CUDA_VISIBLE_DEVICES takes it: the UUID, the index where there is none
  std::string label = {};  // for messages: "GPU 0 (GPU-…)"
  int gpu_index = 0;
  bool mig = false;
  int64_t memory_bytes = 0;
  int numa_node = -1;
  std::string error = {};  // why it cannot be used; empty: it can

  // As it stands in a plan: the UUID, or "GPU:0".
  std::string name() const;
};

// What the launcher itself may use.
struct DevicePool {
  std::vector<PoolDevice> devices = {};
  std::vector<std::string> notices = {};
};

// All GPUs by index, those in MIG mode as their slices, narrowed and ordered by an inherited
// CUDA_VISIBLE_DEVICES as CUDA would: a bad entry hides itself and all that follow. An index that names a GPU
// in MIG mode stands for all of its slices.
DevicePool MakePool(const Inventory& inventory, const Environment& inherited);

// `spec.devices.visible` within the pool: indices count in the pool's order; UUIDs may be shortened as long
// as they stay unique. Empty `visible`: all that can be used; a notice for each that cannot. An entry that
// names no usable device is kFailedPrecondition, naming it and the devices there are; with `soft` it is left
// out with a notice. `field` ("spec.devices.visible") begins the messages.
Result<std::vector<PoolDevice>> ChooseVisible(const DevicePool& pool, const std::vector<std::string>& visible,
                                              bool soft, const std::string& field,
                                              std::vector<std::string>& notices);

// "GPU 0 (GPU-…), GPU 1 (GPU-…)"; "no GPU" for none.
std::string ListDevices(const std::vector<PoolDevice>& devices);

}  // namespace lockstep::placement
