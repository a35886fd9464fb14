#pragma once

#include <string>
#include <string_view>

#include "trainer/strategy/strategy.h"

// How ranks on processors sum their gradients. (Those on GPUs: device_ops.h.)
namespace lockstep::trainer::strategy {

std::string_view OpsName(CrossDeviceOps ops);

struct HostOpsChoice {
  // kAuto: shared memory within each of several machines, and Gloo between them. Never kNccl.
  CrossDeviceOps ops = CrossDeviceOps::kSharedMemory;
  std::string why;  // for the log: "all 4 ranks are on one machine"
};

// What options.ops means for this kind and world; the same on every rank. Throws Unsupported for NCCL, unless
// options.soft_placement, for ops that do not reach from machine to machine, and for those that cannot shard
// as asked.
HostOpsChoice ChooseHostOps(const Options& options);

}  // namespace lockstep::trainer::strategy
