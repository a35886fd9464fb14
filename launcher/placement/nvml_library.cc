#include "launcher/placement/nvml_library.h"

#include <algorithm>
#include <utility>

#include "common/lower_case.h"
#include "launcher/placement/nvml_functions.h"

namespace lockstep::placement {
namespace {

constexpr unsigned kMigEnabled = 1;
constexpr unsigned kTextBytes = 96;  // NVML_DEVICE_UUID_V2_BUFFER_SIZE, the largest of those asked for here

template <typename Function>
bool Load(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

bool NvmlLibrary::Functions::LoadAll() {
  Load(library, "nvmlDeviceGetMigMode", mig_mode);
  Load(library, "nvmlDeviceGetMaxMigDeviceCount", max_mig);
  Load(library, "nvmlDeviceGetMigDeviceHandleByIndex", mig_by_index);
  Load(library, "nvmlDeviceGetNumGpuCores", cuda_cores);
  Load(library, "nvmlDeviceGetMaxClockInfo", max_clock);
  Load(library, "nvmlDeviceGetCudaComputeCapability", compute_capability);
  Load(library, "nvmlDeviceGetUtilizationRates", utilization);
  Load(library, "nvmlDeviceGetPowerUsage", power);
  Load(library, "nvmlDeviceGetTemperature", temperature);
  Load(library, "nvmlDeviceGetCurrentClocksThrottleReasons", throttle_reasons);
  Load(library, "nvmlDeviceGetTotalEccErrors", ecc_errors);
  Load(library, "nvmlEventSetCreate", event_set_create);
  Load(library, "nvmlDeviceRegisterEvents", register_events);
  Load(library, "nvmlEventSetWait_v2", event_set_wait);
  Load(library, "nvmlEventSetFree", event_set_free);
  return Load(library, "nvmlInit_v2", init) && Load(library, "nvmlShutdown", shutdown) &&
         Load(library, "nvmlErrorString", error_string) &&
         Load(library, "nvmlSystemGetDriverVersion", driver_version) &&
         Load(library, "nvmlDeviceGetCount_v2", count) &&
         Load(library, "nvmlDeviceGetHandleByIndex_v2", by_index) &&
         Load(library, "nvmlDeviceGetUUID", uuid) && Load(library, "nvmlDeviceGetName", name) &&
         Load(library, "nvmlDeviceGetMemoryInfo", memory) && Load(library, "nvmlDeviceGetPciInfo_v3", pci);
}

NvmlLibrary::NvmlLibrary(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}
NvmlLibrary::NvmlLibrary(NvmlLibrary&&) noexcept = default;
NvmlLibrary& NvmlLibrary::operator=(NvmlLibrary&&) noexcept = default;
NvmlLibrary::~NvmlLibrary() = default;

Result<NvmlLibrary> NvmlLibrary::Open(const std::string& file) {
  auto functions = std::make_unique<Functions>();
  functions->library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (functions->library == nullptr) return NotFound("open " + file + ": " + dlerror());
  if (!functions->LoadAll()) return FailedPrecondition(file + ": too old, functions are missing");
  const int code = functions->init();
  functions->initialized = code == kNvmlSuccess;
  NvmlLibrary library(std::move(functions));
  if (code != kNvmlSuccess) return library.ToStatus(code, "nvmlInit");
  return library;
}

Status NvmlLibrary::ToStatus(int code, const char* operation) const {
  if (code == kNvmlSuccess) return Status();
  const char* text = functions_->error_string(code);
  std::string message = std::string(operation) + ": ";
  message += text != nullptr ? text : "error " + std::to_string(code);
  if (code == kNvmlNotSupported) return Unimplemented(std::move(message));
  if (code == kNvmlNoPermission) return PermissionDenied(std::move(message));
  return FailedPrecondition(std::move(message));
}

Result<std::string> NvmlLibrary::DriverVersion() const {
  char text[kTextBytes] = {};
  LOCKSTEP_RETURN_IF_ERROR(ToStatus(functions_->driver_version(text, sizeof(text)), "driver version"));
  return std::string(text);
}

Result<int> NvmlLibrary::DeviceCount() const {
  unsigned count = 0;
  LOCKSTEP_RETURN_IF_ERROR(ToStatus(functions_->count(&count), "count GPUs"));
  return static_cast<int>(count);
}

Result<NvmlLibrary::Device> NvmlLibrary::DeviceByIndex(int index) const {
  Device device = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(ToStatus(functions_->by_index(static_cast<unsigned>(index), &device), "open"));
  return device;
}

Result<std::string> NvmlLibrary::Uuid(Device device) const {
  char text[kTextBytes] = {};
  LOCKSTEP_RETURN_IF_ERROR(ToStatus(functions_->uuid(device, text, sizeof(text)), "UUID"));
  return std::string(text);
}

Result<std::string> NvmlLibrary::Name(Device device) const {
  char text[kTextBytes] = {};
  LOCKSTEP_RETURN_IF_ERROR(ToStatus(functions_->name(device, text, sizeof(text)), "name"));
  return std::string(text);
}

Result<NvmlLibrary::Memory> NvmlLibrary::MemoryInfo(Device device) const {
  NvmlMemory memory = {};
  LOCKSTEP_RETURN_IF_ERROR(ToStatus(functions_->memory(device, &memory), "memory"));
  return Memory{.total = static_cast<int64_t>(memory.total)};
}

Result<std::string> NvmlLibrary::PciBusId(Device device) const {
  NvmlPciInfo info = {};
  LOCKSTEP_RETURN_IF_ERROR(ToStatus(functions_->pci(device, &info), "PCI address"));
  const auto* const end = std::find(std::begin(info.bus_id), std::end(info.bus_id), '\0');
  std::string id = LowerCase({std::begin(info.bus_id), end});
  // NVML's domain has eight digits ("00000000:3B:00.0"), the kernel's at least four.
  if (id.size() > 12 && id.find(':') == 8 && id.starts_with("0000")) id.erase(0, 4);
  return id;
}

bool NvmlLibrary::MigMode(Device device) const {
  unsigned current = 0;
  unsigned pending = 0;
  return functions_->mig_mode != nullptr &&
         functions_->mig_mode(device, &current, &pending) == kNvmlSuccess && current == kMigEnabled;
}

int NvmlLibrary::MaxMigSlices(Device device) const {
  unsigned count = 0;
  if (functions_->max_mig == nullptr || functions_->max_mig(device, &count) != kNvmlSuccess) return 0;
  return static_cast<int>(count);
}

std::optional<NvmlLibrary::Device> NvmlLibrary::MigSlice(Device device, int index) const {
  Device slice = nullptr;
  if (functions_->mig_by_index == nullptr ||
      functions_->mig_by_index(device, static_cast<unsigned>(index), &slice) != kNvmlSuccess) {
    return std::nullopt;
  }
  return slice;
}

}  // namespace lockstep::placement
