// A libnvidia-ml.so.1 that answers from a table (kFakeNvmlTable, a file of tests/testdata/nvml), so that the
// loading of the library, the layouts and the error paths are the real ones. What happens to a GPU while a
// test runs stands in the file that FAKE_NVML_EVENTS names, a line each: "INDEX xid NUMBER" or "INDEX lost".
// Structures are written out here once more, and not shared with the code under test.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

extern const char* const kFakeNvmlTable;

namespace {

constexpr int kSuccess = 0;
constexpr int kUninitialized = 1;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;
constexpr int kTimeout = 10;
constexpr int kGpuIsLost = 15;

bool initialized = false;

const nlohmann::json& Table() {
  static const nlohmann::json table = nlohmann::json::parse(std::ifstream(kFakeNvmlTable));
  return table;
}

const nlohmann::json& Entry(const void* device) { return *static_cast<const nlohmann::json*>(device); }

int CopyText(const nlohmann::json& object, const char* key, char* out, unsigned length) {
  if (!initialized) return kUninitialized;
  const std::string text = object.value(key, "");
  if (text.size() + 1 > length) return kInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

// The GPUs lost by now, and the Xid errors after the first `skip` of them.
struct Happened {
  std::set<unsigned> lost;
  std::vector<std::pair<unsigned, unsigned>> xids;  // GPU, number
};

Happened ReadEvents() {
  Happened happened;
  const char* file = std::getenv("FAKE_NVML_EVENTS");
  if (file == nullptr) return happened;
  std::ifstream stream(file);
  std::string line;
  // A line that is still being written has no end yet.
  while (std::getline(stream, line) && !stream.eof()) {
    unsigned index = 0;
    unsigned number = 0;
    if (std::sscanf(line.c_str(), "%u xid %u", &index, &number) == 2) {
      happened.xids.emplace_back(index, number);
    } else if (line.ends_with(" lost") && std::sscanf(line.c_str(), "%u", &index) == 1) {
      happened.lost.insert(index);
    }
  }
  return happened;
}

bool IsLost(const void* device) {
  const auto& gpus = Table()["gpus"];
  for (const unsigned index : ReadEvents().lost) {
    if (index < gpus.size() && &gpus[index] == device) return true;
  }
  return false;
}

template <typename Number>
int Answer(const void* device, const char* key, Number* out) {
  if (!initialized) return kUninitialized;
  if (IsLost(device)) return kGpuIsLost;
  if (!Entry(device).contains(key)) return kNotSupported;
  *out = Entry(device)[key].get<Number>();
  return kSuccess;
}

size_t told_xids = 0;

}  // namespace

extern "C" {

struct FakeMemory {
  unsigned long long total, free, used;
};

struct FakePci {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

int nvmlInit_v2() {
  const int error = Table().value("init_error", kSuccess);
  initialized = error == kSuccess;
  return error;
}

int nvmlShutdown() {
  if (!initialized) return kUninitialized;
  initialized = false;
  return kSuccess;
}

const char* nvmlErrorString(int code) {
  switch (code) {
    case kSuccess:
      return "Success";
    case 9:
      return "Driver Not Loaded";
    case 15:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}

int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  return CopyText(Table(), "driver", version, length);
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  if (!initialized) return kUninitialized;
  *count = static_cast<unsigned>(Table()["gpus"].size());
  return kSuccess;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, const void** device) {
  if (!initialized) return kUninitialized;
  const auto& gpus = Table()["gpus"];
  if (index >= gpus.size()) return kInvalidArgument;
  *device = &gpus[index];
  return gpus[index].value("open_error", kSuccess);
}

int nvmlDeviceGetUUID(const void* device, char* uuid, unsigned length) {
  return CopyText(Entry(device), "uuid", uuid, length);
}

int nvmlDeviceGetName(const void* device, char* name, unsigned length) {
  return CopyText(Entry(device), "name", name, length);
}

int nvmlDeviceGetMemoryInfo(const void* device, FakeMemory* memory) {
  const auto total = Entry(device).value("memory", 0ULL);
  *memory = {total, total - (1 << 20), 1 << 20};
  if (IsLost(device)) return kGpuIsLost;
  return Entry(device).value("memory_error", kSuccess);
}

int nvmlDeviceGetPciInfo_v3(const void* device, FakePci* pci) {
  if (!Entry(device).contains("pci")) return kNotSupported;
  *pci = {};
  pci->pci_subsystem_id = 0x16c110de;
  std::snprintf(pci->bus_id_legacy, sizeof(pci->bus_id_legacy), "legacy");
  return CopyText(Entry(device), "pci", pci->bus_id, sizeof(pci->bus_id));
}

int nvmlDeviceGetMigMode(const void* device, unsigned* current, unsigned* pending) {
  const int error = Entry(device).value("mig_error", kSuccess);
  if (error != kSuccess) return error;
  *current = *pending = Entry(device).value("mig", false) ? 1 : 0;
  return kSuccess;
}

int nvmlDeviceGetMaxMigDeviceCount(const void* device, unsigned* count) {
  *count = Entry(device).value("max_slices", 0U);
  return kSuccess;
}

int nvmlDeviceGetMigDeviceHandleByIndex(const void* device, unsigned index, const void** slice) {
  for (const auto& candidate : Entry(device)["slices"]) {
    if (candidate["index"] != index) continue;
    *slice = &candidate;
    return kSuccess;
  }
  return kNotFound;
}

struct FakeUtilization {
  unsigned gpu, memory;
};

struct FakeEventData {
  const void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

int nvmlDeviceGetUtilizationRates(const void* device, FakeUtilization* utilization) {
  return Answer(device, "utilization", &utilization->gpu);
}

int nvmlDeviceGetNumGpuCores(const void* device, unsigned* cores) { return Answer(device, "cores", cores); }

int nvmlDeviceGetMaxClockInfo(const void* device, int clock, unsigned* megahertz) {
  return clock == 1 ? Answer(device, "max_clock", megahertz) : kInvalidArgument;
}

int nvmlDeviceGetCudaComputeCapability(const void* device, int* major, int* minor) {
  unsigned capability = 0;
  const int error = Answer(device, "capability", &capability);
  *major = static_cast<int>(capability) / 10;
  *minor = static_cast<int>(capability) % 10;
  return error;
}

int nvmlDeviceGetPowerUsage(const void* device, unsigned* milliwatts) {
  return Answer(device, "power", milliwatts);
}

int nvmlDeviceGetTemperature(const void* device, int sensor, unsigned* temperature) {
  return sensor == 0 ? Answer(device, "temperature", temperature) : kInvalidArgument;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(const void* device, unsigned long long* reasons) {
  return Answer(device, "throttle", reasons);
}

int nvmlDeviceGetTotalEccErrors(const void* device, int type, int counter, unsigned long long* count) {
  return type == 1 && counter == 0 ? Answer(device, "ecc", count) : kInvalidArgument;
}

int nvmlEventSetCreate(void** set) {
  told_xids = 0;  // a new set tells of all
  *set = &told_xids;
  return kSuccess;
}

int nvmlDeviceRegisterEvents(const void*, unsigned long long types, void* set) {
  return types == 8 && set == &told_xids ? kSuccess : kInvalidArgument;
}

int nvmlEventSetWait_v2(void* set, FakeEventData* data, unsigned milliseconds) {
  if (set != &told_xids) return kInvalidArgument;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  do {
    const auto xids = ReadEvents().xids;
    if (told_xids < xids.size()) {
      const auto [index, number] = xids[told_xids++];
      *data = {&Table()["gpus"].at(index), 8, number, ~0U, ~0U};
      return kSuccess;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  } while (std::chrono::steady_clock::now() < deadline);
  return kTimeout;
}

int nvmlEventSetFree(void* set) { return set == &told_xids ? kSuccess : kInvalidArgument; }

}  // extern "C"
