#include "trainer/strategy/host_ops.h"

#include "trainer/error.h"

namespace lockstep::trainer::strategy {
namespace {

HostOpsChoice ChooseFreely(const Options& options) {
  const World& world = options.world;
  const std::string ranks = std::to_string(world.size) + " ranks";
  if (options.kind == Kind::kCentralStorage) {
    return {CrossDeviceOps::kReductionToOneDevice,
            "CentralStorage has the variables of all " + ranks + " at rank 0"};
  }
  if (options.shard == Shard::kGradients && world.group_size == 1) {
    return {CrossDeviceOps::kGloo, "with shard: Gradients no rank shares its memory"};
  }
  if (world.group_size == 1) return {CrossDeviceOps::kSharedMemory, "all " + ranks + " are on one machine"};
  return {CrossDeviceOps::kAuto, ranks + " are on " + std::to_string(world.group_size) +
                                     " machines, within each of which they share memory"};
}

}  // namespace

std::string_view OpsName(CrossDeviceOps ops) {
  switch (ops) {
    case CrossDeviceOps::kAuto:
      return "Auto";
    case CrossDeviceOps::kSharedMemory:
      return "SharedMemory";
    case CrossDeviceOps::kGloo:
      return "Gloo";
    case CrossDeviceOps::kNccl:
      return "NCCL";
    case CrossDeviceOps::kHierarchicalCopy:
      return "HierarchicalCopy";
    case CrossDeviceOps::kReductionToOneDevice:
      return "ReductionToOneDevice";
  }
  return "?";
}

HostOpsChoice ChooseHostOps(const Options& options) {
  const std::string name(OpsName(options.ops));
  if (options.kind == Kind::kCentralStorage && options.ops != CrossDeviceOps::kAuto) {
    throw Unsupported(
        "strategy: crossDeviceOps " + name +
        " is for mirrored variables, and CentralStorage has them at one rank; Auto would be right");
  }
  switch (options.ops) {
    case CrossDeviceOps::kAuto:
      return ChooseFreely(options);
    case CrossDeviceOps::kNccl: {
      if (!options.soft_placement) {
        throw Unsupported(
            "strategy: crossDeviceOps NCCL sums on GPUs, and this job is on processors; Auto would be right, "
            "or "
            "devices.softPlacement: true to fall back on it");
      }
      HostOpsChoice choice = ChooseFreely(options);
      choice.why += ", and NCCL, which is asked for, sums on GPUs";
      return choice;
    }
    case CrossDeviceOps::kSharedMemory:
    case CrossDeviceOps::kHierarchicalCopy:
    case CrossDeviceOps::kReductionToOneDevice:
      if (options.world.group_size > 1) {
        throw Unsupported("strategy: crossDeviceOps " + name + " is for one machine, and there are " +
                          std::to_string(options.world.group_size) + "; Auto would be right");
      }
      if (options.shard == Shard::kGradients) {
        throw Unsupported(
            "strategy: shard Gradients needs ranks that send them to one another, and with crossDeviceOps " +
            name + " they share them; Auto or Gloo would be right");
      }
      break;
    case CrossDeviceOps::kGloo:
      break;
  }
  return {options.ops, "crossDeviceOps asks for it"};
}

}  // namespace lockstep::trainer::strategy
