// A libnvidia-ml.so.1 that answers from a table (FAKE_NVML_TABLE, a file of tests/testdata/nvml), so that the
// loading of the library, the layouts and the error paths are the real ones. Structures are written out here
// once more, and not shared with the code under test.

#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace {

constexpr int kSuccess = 0;
constexpr int kUninitialized = 1;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;

bool initialized = false;

const nlohmann::json& Table() {
  static const nlohmann::json table = nlohmann::json::parse(std::ifstream(FAKE_NVML_TABLE));
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

}  // extern "C"
