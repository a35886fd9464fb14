#include "launcher/placement/memory_share.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "launcher/placement/role_view.h"

namespace lockstep::placement {
namespace {

const PoolDevice* Smallest(const std::vector<PoolDevice>& devices) {
  const auto smallest = std::min_element(
      devices.begin(), devices.end(),
      [](const PoolDevice& a, const PoolDevice& b) { return a.memory_bytes < b.memory_bytes; });
  return smallest == devices.end() ? nullptr : &*smallest;
}

std::string Sharing(int sharers) {
  return sharers < 2 ? "" : ", which " + std::to_string(sharers) + " processes share";
}

Status CheckFits(const MemoryShare& share, const PoolDevice& device, const MemoryRequest& request) {
  if (share.fraction && *share.fraction * request.sharers > 1 + 1e-9) {
    const bool bytes = share.limit && request.devices.memory.policy != spec::MemoryPolicy::kFraction;
    const bool by_virtual = request.devices.virtual_devices && request.devices.virtual_devices->memory_limit;
    if (!bytes) {
      char most[32];
      std::snprintf(most, sizeof(most), "%.3g", std::floor(1000.0 / request.sharers) / 1000.0);
      return InvalidArgument(request.field + "devices.memory.fraction: too much of " + device.label +
                             Sharing(request.sharers) + "; at most " + most);
    }
    return InvalidArgument(
        request.field + (by_virtual ? "devices.virtual.memoryLimit: " : "devices.memory.limit: ") +
        FormatBytes(*share.limit) + " is too much of " + device.label + Sharing(request.sharers) +
        "; at most " + FormatBytes(device.memory_bytes / request.sharers));
  }
  return Status();
}

// The size of a virtual device, where there are any.
std::optional<int64_t> VirtualLimit(const MemoryRequest& request, const PoolDevice& device) {
  const auto& divided = request.devices.virtual_devices;
  if (!divided || !request.divided) return divided ? divided->memory_limit : std::nullopt;
  if (divided->memory_limit) return divided->memory_limit;
  if (divided->per_device < 2 || device.memory_bytes == 0) return std::nullopt;
  const spec::MemoryPolicy policy = request.devices.memory.policy;
  const bool bounded = policy == spec::MemoryPolicy::kLimit || policy == spec::MemoryPolicy::kFraction;
  return bounded ? std::nullopt : std::optional(device.memory_bytes / divided->per_device);
}

Status EnforceByMps(MemoryShare& share, const MemoryRequest& request, std::vector<std::string>& notices) {
  const std::string field = request.field + "devices.memory.enforce: ";
  if (!share.limit) {
    AddNotice(notices, field + "MPS has nothing to enforce without a limit or a fraction");
    return Status();
  }
  if (!request.mps_control) {
    const std::string why = field + "MPS needs nvidia-cuda-mps-control, which is not in the PATH";
    if (!request.devices.soft_placement) {
      return FailedPrecondition(why + "; it comes with NVIDIA's driver. Or set enforce: None");
    }
    AddNotice(notices, why + "; the limit is not enforced (softPlacement)");
    return Status();
  }
  share.mps = true;
  return Status();
}

}  // namespace

std::string FormatBytes(int64_t bytes) {
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  char text[48];
  if (mebibytes >= 1024) {
    std::snprintf(text, sizeof(text), "%.4g GiB", mebibytes / 1024);
  } else {
    std::snprintf(text, sizeof(text), "%.4g MiB", mebibytes);
  }
  return text;
}

std::string FormatFraction(double fraction) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", std::max(0.001, std::floor(fraction * 1000 + 1e-6) / 1000));
  std::string result = text;
  while (result.back() == '0') result.pop_back();
  if (result.back() == '.') result.pop_back();
  return result;
}

Result<MemoryShare> ShareMemory(const MemoryRequest& request, std::vector<std::string>& notices) {
  const spec::DeviceMemory& memory = request.devices.memory;
  MemoryShare share{.policy = memory.policy, .limit = memory.limit, .fraction = memory.fraction};
  const PoolDevice* device = Smallest(request.own);
  if (device == nullptr) return Internal("placement: a GPU process without a GPU");
  if (const std::optional<int64_t> limit = VirtualLimit(request, *device)) {
    // A fraction or a limit next to it may be tighter; a virtual device's size always binds.
    if (share.policy == spec::MemoryPolicy::kGrowth) share.policy = spec::MemoryPolicy::kLimit;
    share.limit = share.limit ? std::min(*share.limit, *limit) : *limit;
  }
  if (device->memory_bytes > 0) {
    const auto bytes = static_cast<double>(device->memory_bytes);
    if (share.policy == spec::MemoryPolicy::kFraction && share.fraction) {
      const auto limit = static_cast<int64_t>(*share.fraction * bytes);
      share.limit = share.limit ? std::min(*share.limit, limit) : limit;
    }
    if (share.limit) share.fraction = static_cast<double>(*share.limit) / bytes;
    LOCKSTEP_RETURN_IF_ERROR(CheckFits(share, *device, request));
  }
  if (memory.policy == spec::MemoryPolicy::kPreallocate && !share.limit && request.sharers > 1) {
    AddNotice(notices, request.field + "devices.memory.policy: Preallocate on " + device->label +
                           Sharing(request.sharers) +
                           ": the first may leave nothing to the others; use Fraction");
  }
  if (memory.enforce == spec::MemoryEnforcement::kMps) {
    LOCKSTEP_RETURN_IF_ERROR(EnforceByMps(share, request, notices));
  }
  return share;
}

}  // namespace lockstep::placement
