#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "launcher/placement/assign.h"
#include "launcher/placement/device_pool.h"
#include "launcher/placement/role_view.h"

namespace lockstep::placement {

// The library with the trainer's GPU backend, in the trainer's folder or in ../lib from there.
inline constexpr char kCudaPluginFile[] = "liblockstep-cuda.so";

// What this machine offers to a role, before it is divided over processes.
struct DeviceChoice {
  std::vector<PoolDevice> gpus = {};  // in order; empty: the CPU
  int physical_gpus = 0;              // usable ones in the pool, chosen or not
};

// GPUs or the CPU, and which GPUs, by `devices.type`, `visible`, `softPlacement` and the inherited
// environment.
Result<DeviceChoice> ChooseDevices(const RoleView& view, const DeviceRequest& request,
                                   std::vector<std::string>& notices);

// `choice` has GPUs.
spec::Visibility ChooseVisibility(const RoleView& view, const DeviceChoice& choice,
                                  std::vector<std::string>& notices);

bool HasSlices(const std::vector<PoolDevice>& gpus);

// `devices.virtual.perDevice`; 1 where it is not given.
int PerDevice(const spec::Devices& devices);

}  // namespace lockstep::placement
