#include "trainer/strategy/strategy.h"

#include "trainer/error.h"
#include "trainer/strategy/device_replicated.h"
#include "trainer/strategy/mirrored.h"
#include "trainer/strategy/multi_worker_mirrored.h"
#include "trainer/strategy/one_device.h"

namespace lockstep::trainer::strategy {
namespace {

void Check(bool right, const std::string& what) {
  if (!right) throw Unsupported("strategy: " + what);
}

void CheckWorld(const Options& options) {
  const World& w = options.world;
  Check(w.size >= 1 && w.local_size >= 1 && w.group_size >= 1 && w.size == w.local_size * w.group_size,
        "a world of " + std::to_string(w.size) + " ranks is not " + std::to_string(w.group_size) +
            " machines of " + std::to_string(w.local_size));
  Check(w.local_rank >= 0 && w.local_rank < w.local_size && w.group_rank >= 0 &&
            w.group_rank < w.group_size && w.rank == w.group_rank * w.local_size + w.local_rank,
        "rank " + std::to_string(w.rank) + " is not local rank " + std::to_string(w.local_rank) +
            " of machine " + std::to_string(w.group_rank));
  Check(w.size == 1 || options.store != nullptr, "several ranks need a store to meet in");
}

}  // namespace

std::unique_ptr<Strategy> MakeStrategy(const Options& given) {
  Options options = given;
  World& world = options.world;
  CheckWorld(options);
  const std::string machines = std::to_string(world.group_size) + " machines";
  Check(options.kind != Kind::kOneDevice || world.size == 1, "OneDevice is for one process, and there are " +
                                                                 std::to_string(world.size) +
                                                                 "; Mirrored would be right");
  Check(options.kind != Kind::kMirrored || world.group_size == 1,
        "Mirrored is for one machine, and there are " + machines + "; MultiWorkerMirrored would be right");
  if (options.device != nullptr) {
    Check(world.size == 1 || options.communicators != nullptr, "several ranks on GPUs need communicators");
    return std::make_unique<DeviceReplicated>(options);
  }
  Check(options.ops == CrossDeviceOps::kAuto || options.ops == CrossDeviceOps::kSharedMemory ||
            options.ops == CrossDeviceOps::kGloo,
        "crossDeviceOps NCCL, HierarchicalCopy and ReductionToOneDevice sum on GPUs, and this job is on "
        "processors; Auto would be right");
  Check(
      options.ops != CrossDeviceOps::kSharedMemory || world.group_size == 1,
      "crossDeviceOps SharedMemory is for one machine, and there are " + machines + "; Auto would be right");
  if (world.size == 1) return std::make_unique<OneDevice>(options);
  if (options.ops == CrossDeviceOps::kGloo) {
    // Each rank as if on a machine of its own.
    world = {.rank = world.rank, .size = world.size, .group_rank = world.rank, .group_size = world.size};
  }
  if (world.group_size == 1) return std::make_unique<Mirrored>(options);
  return std::make_unique<MultiWorkerMirrored>(options);
}

}  // namespace lockstep::trainer::strategy
