#pragma once

#include <span>
#include <string>

#include "trainer/collectives/device_communicator.h"
#include "trainer/strategy/strategy.h"

// Who shares a GPU with whom, and what follows from it.
namespace lockstep::trainer::strategy {

// A rank's GPU, or slice of one.
struct RankDevice {
  std::string uuid;
  bool shared = false;  // the launcher knows of other ranks on the same GPU, whose slices' UUIDs may differ
};

// Every rank's, in rank order, told through the store. Throws RendezvousFailed.
std::vector<RankDevice> TellDevices(const Options& options);

struct DeviceOpsChoice {
  collectives::DeviceOps ops = collectives::DeviceOps::kNccl;
  bool shared_devices = false;  // some ranks share a GPU
  std::string why;              // for the log: "ranks 0 and 1 share GPU-…"
};
// What `asked` means for these ranks: the same on every one of them, since all know all the GPUs. Auto: NCCL
// where each rank has a GPU of its own; where some share one, peer access if all are on one machine, since
// NCCL does not always allow it. Throws Unsupported for ops that are not for GPUs, or not between machines.
DeviceOpsChoice ChooseDeviceOps(CrossDeviceOps asked, const World& world,
                                std::span<const RankDevice> devices);

}  // namespace lockstep::trainer::strategy
