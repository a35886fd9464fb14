#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trainer/backend/device_backend.h"

// The way to liblockstep-cuda.so, which holds everything that is linked to CUDA. It is opened at run time, so
// that the same program starts where there is no driver, or no such file.
namespace lockstep::trainer {

enum class MemoryPolicy { kGrowth, kPreallocate, kLimit, kFraction };

struct DeviceOptions {
  int ordinal = 0;  // among the devices this process sees
  MemoryPolicy policy = MemoryPolicy::kGrowth;
  int64_t limit = 0;    // bytes; kLimit: required; others: 0 is none, else the tighter of the two rules holds
  double fraction = 0;  // (0, 1] of the device's memory; kFraction
};

// What the library exports, under kCudaEntry. Made for one version of this program only: both are built and
// shipped together.
struct CudaEntry {
  const char* build;  // must equal kCudaBuild of the program
  // How many devices there are. 0 with the reason in `why` (no driver, too old a driver, none visible).
  int (*device_count)(std::string* why);
  // Throws Unsupported (naming the device and those there are), OutOfMemory, DeviceLost.
  std::unique_ptr<DeviceBackend> (*make_backend)(const DeviceOptions& options);
};
inline constexpr const char* kCudaEntry = "lockstep_cuda_entry";
extern const char* const kCudaBuild;

// The opened library. It stays open until the process ends: the driver's threads may run on in it.
class CudaPlugin {
 public:
  // From $LOCKSTEP_CUDA_PLUGIN, or beside the program, or in ../lib from there. Empty when there is none or
  // it cannot be used; `why` then says so in a sentence that names the file.
  static std::optional<CudaPlugin> Open(std::string* why);

  const CudaEntry& entry() const { return *entry_; }
  // Another exported symbol, for other folders of the trainer that have a part in the library; null if
  // absent.
  void* Symbol(const char* name) const;
  const std::string& path() const { return path_; }

 private:
  CudaPlugin(void* library, const CudaEntry* entry, std::string path)
      : library_(library), entry_(entry), path_(std::move(path)) {}
  void* library_;
  const CudaEntry* entry_;
  std::string path_;
};

}  // namespace lockstep::trainer
