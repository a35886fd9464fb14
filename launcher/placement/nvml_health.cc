#include <algorithm>

#include "launcher/placement/nvml_functions.h"
#include "launcher/placement/nvml_library.h"

namespace lockstep::placement {
namespace {

constexpr int kDieTemperature = 0;              // NVML_TEMPERATURE_GPU
constexpr int kUncorrectedErrors = 1;           // NVML_MEMORY_ERROR_TYPE_UNCORRECTED
constexpr int kSinceDriverLoad = 0;             // NVML_VOLATILE_ECC
constexpr int kMultiprocessorClock = 1;         // NVML_CLOCK_SM
constexpr unsigned long long kXidEvents = 0x8;  // nvmlEventTypeXidCriticalError

}  // namespace

std::optional<NvmlLibrary::Computing> NvmlLibrary::ReadComputing(Device device) const {
  const Functions& nvml = *functions_;
  if (nvml.cuda_cores == nullptr || nvml.max_clock == nullptr || nvml.compute_capability == nullptr)
    return {};
  unsigned cores = 0, megahertz = 0;
  Computing computing;
  if (nvml.cuda_cores(device, &cores) != kNvmlSuccess) return {};
  if (nvml.max_clock(device, kMultiprocessorClock, &megahertz) != kNvmlSuccess) return {};
  if (nvml.compute_capability(device, &computing.major, &computing.minor) != kNvmlSuccess) return {};
  computing.cuda_cores = static_cast<int>(cores);
  computing.max_clock = megahertz * 1e6;
  return computing;
}

NvmlLibrary::Health NvmlLibrary::ReadHealth(Device device) const {
  const Functions& nvml = *functions_;
  Health health;
  const auto told = [&](int code) {
    if ((code == kNvmlGpuIsLost || code == kNvmlResetRequired) && health.lost.empty()) {
      const char* text = nvml.error_string(code);
      health.lost = text != nullptr ? text : "error " + std::to_string(code);
    }
    return code == kNvmlSuccess;
  };
  NvmlMemory memory = {};
  if (told(nvml.memory(device, &memory))) health.memory_used = static_cast<int64_t>(memory.used);
  if (!health.lost.empty()) return health;  // every further call would only wait for it
  NvmlUtilization utilization = {};
  if (nvml.utilization != nullptr && told(nvml.utilization(device, &utilization))) {
    health.utilization = std::min(1.0, utilization.gpu / 100.0);
  }
  unsigned number = 0;
  if (nvml.power != nullptr && told(nvml.power(device, &number))) health.power_watts = number / 1000.0;
  if (nvml.temperature != nullptr && told(nvml.temperature(device, kDieTemperature, &number))) {
    health.temperature = number;
  }
  unsigned long long bits = 0;
  if (nvml.throttle_reasons != nullptr && told(nvml.throttle_reasons(device, &bits))) {
    health.throttle_reasons = bits;
  }
  if (nvml.ecc_errors != nullptr &&
      told(nvml.ecc_errors(device, kUncorrectedErrors, kSinceDriverLoad, &bits))) {
    health.ecc_errors = static_cast<int64_t>(bits);
  }
  return health;
}

Status NvmlLibrary::WatchXids(const std::vector<Device>& devices) {
  Functions& nvml = *functions_;
  if (nvml.event_set_create == nullptr || nvml.register_events == nullptr || nvml.event_set_wait == nullptr ||
      nvml.event_set_free == nullptr) {
    return Unimplemented("Xid errors: this driver's library does not tell of them");
  }
  if (nvml.events == nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(ToStatus(nvml.event_set_create(&nvml.events), "Xid errors"));
  }
  Status first;
  bool watched = false;
  for (const Device device : devices) {
    Status status = ToStatus(nvml.register_events(device, kXidEvents, nvml.events), "Xid errors");
    watched = watched || status.ok();
    if (first.ok()) first = std::move(status);
  }
  return watched ? Status() : first;
}

Result<std::optional<NvmlLibrary::XidEvent>> NvmlLibrary::WaitForXid(std::chrono::milliseconds limit) const {
  NvmlEventData data = {};
  const int code =
      functions_->event_set_wait(functions_->events, &data, static_cast<unsigned>(limit.count()));
  if (code == kNvmlTimeout) return std::optional<XidEvent>();
  if (code != kNvmlSuccess) return ToStatus(code, "wait for Xid errors");
  if ((data.type & kXidEvents) == 0) return std::optional<XidEvent>();
  return std::optional<XidEvent>(
      {.device = data.device, .xid = static_cast<int>(std::min<unsigned long long>(data.data, 1 << 20))});
}

}  // namespace lockstep::placement
