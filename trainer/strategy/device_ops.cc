#include "trainer/strategy/device_ops.h"

#include <algorithm>
#include <vector>

#include "trainer/error.h"

namespace lockstep::trainer::strategy {

using collectives::DeviceOps;
namespace {
// In front of the UUID.
constexpr char kShared = '+', kAlone = '-';
}  // namespace

std::vector<RankDevice> TellDevices(const Options& options) {
  const auto deadline = std::chrono::steady_clock::now() + options.setup_timeout;
  const auto check = [](const Status& status) {
    if (!status.ok()) throw RendezvousFailed("telling the others this rank's GPU: " + status.message());
  };
  const auto key = [](int rank) { return "device/" + std::to_string(rank); };
  check(options.store->Set(
      key(options.world.rank),
      std::string(1, options.shares_device ? kShared : kAlone) + options.device->identity().uuid, deadline));
  std::vector<std::string> keys;
  for (int r = 0; r < options.world.size; ++r) keys.push_back(key(r));
  check(options.store->Wait(keys, deadline));
  std::vector<RankDevice> devices;
  for (const std::string& each : keys) {
    const Result<std::string> told = options.store->Get(each, deadline);
    check(told.status());
    devices.push_back(
        {.uuid = told->substr(std::min<size_t>(told->size(), 1)), .shared = told->starts_with(kShared)});
  }
  return devices;
}

DeviceOpsChoice ChooseDeviceOps(CrossDeviceOps asked, const World& world,
                                std::span<const RankDevice> devices) {
  DeviceOpsChoice choice{.why = "each rank has a GPU of its own"};
  for (size_t a = 0; a < devices.size() && !choice.shared_devices; ++a) {
    for (size_t b = a + 1; b < devices.size() && !choice.shared_devices; ++b) {
      if (devices[a].uuid != devices[b].uuid) continue;
      choice.shared_devices = true;
      choice.why = "ranks " + std::to_string(a) + " and " + std::to_string(b) + " share " + devices[a].uuid;
    }
  }
  for (size_t a = 0; a < devices.size() && !choice.shared_devices; ++a) {
    if (!devices[a].shared) continue;
    choice.shared_devices = true;
    choice.why = "rank " + std::to_string(a) + " shares the GPU of " + devices[a].uuid;
  }
  const bool one_machine = world.group_size == 1;
  if (asked != CrossDeviceOps::kAuto) choice.why = "crossDeviceOps asks for it; " + choice.why;
  switch (asked) {
    case CrossDeviceOps::kAuto:
      choice.ops = choice.shared_devices && one_machine ? DeviceOps::kHierarchicalCopy : DeviceOps::kNccl;
      return choice;
    case CrossDeviceOps::kNccl:
      choice.ops = DeviceOps::kNccl;
      return choice;
    case CrossDeviceOps::kHierarchicalCopy:
    case CrossDeviceOps::kReductionToOneDevice:
      choice.ops = asked == CrossDeviceOps::kHierarchicalCopy ? DeviceOps::kHierarchicalCopy
                                                              : DeviceOps::kReductionToOneDevice;
      if (one_machine) return choice;
      throw Unsupported("strategy: crossDeviceOps " + std::string(DeviceOpsName(choice.ops)) +
                        " is for one machine, and there are " + std::to_string(world.group_size) +
                        "; NCCL would be right");
    case CrossDeviceOps::kSharedMemory:
    case CrossDeviceOps::kGloo:
      break;
  }
  throw Unsupported("strategy: crossDeviceOps " +
                    std::string(asked == CrossDeviceOps::kGloo ? "Gloo" : "SharedMemory") +
                    " sums in the memory of processors, and this job is on GPUs; Auto would be right");
}

}  // namespace lockstep::trainer::strategy
