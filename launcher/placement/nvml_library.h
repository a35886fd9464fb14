#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"

namespace lockstep::placement {

// NVIDIA's management library, opened at run time so that the program starts where there is no driver.
// Move-only; closes the library when it goes. Use from one thread at a time. The functions and structures are
// NVML's documented ABI (docs.nvidia.com/deploy/nvml-api), declared in the source file: the driver brings no
// header.
class NvmlLibrary {
 public:
  // A device of the library, valid as long as it. Never dereferenced.
  using Device = void*;

  struct Memory {
    int64_t total = 0;  // bytes
  };

  // How a GPU is. What the driver does not tell of this GPU is empty.
  struct Health {
    std::string lost = {};                   // why it cannot be used any more, in NVML's words; empty: it can
    std::optional<double> utilization = {};  // 0 … 1: time in which a kernel ran
    std::optional<int64_t> memory_used = {};
    std::optional<double> power_watts = {};
    std::optional<double> temperature = {};         // Celsius
    std::optional<uint64_t> throttle_reasons = {};  // bits of nvmlClocksEventReasons
    std::optional<int64_t> ecc_errors = {};         // uncorrected, since the driver was loaded
  };

  // What a GPU computes with.
  struct Computing {
    int cuda_cores = 0;
    double max_clock = 0;  // of its multiprocessors, Hz
    int major = 0;         // compute capability
    int minor = 0;
  };

  // An error that the driver reported of a GPU (NVIDIA, "XID Errors").
  struct XidEvent {
    Device device = nullptr;
    int xid = 0;
  };

  // kNotFound: no such library; kFailedPrecondition: it is there but does not work (no driver loaded, driver
  // and library of different versions), in NVML's words.
  static Result<NvmlLibrary> Open(const std::string& file);

  NvmlLibrary(NvmlLibrary&&) noexcept;
  NvmlLibrary& operator=(NvmlLibrary&&) noexcept;
  ~NvmlLibrary();

  // Errors of the calls below, in NVML's words: kUnimplemented (not with this GPU), kPermissionDenied, or
  // kFailedPrecondition (a lost GPU).
  Result<std::string> DriverVersion() const;
  Result<int> DeviceCount() const;
  Result<Device> DeviceByIndex(int index) const;
  Result<std::string> Uuid(Device device) const;
  Result<std::string> Name(Device device) const;
  Result<Memory> MemoryInfo(Device device) const;
  // As /sys writes it: "0000:3b:00.0".
  Result<std::string> PciBusId(Device device) const;

  // Whether the GPU is in MIG mode; false for GPUs and drivers that know none.
  bool MigMode(Device device) const;
  // At most so many slices; their indices may have gaps.
  int MaxMigSlices(Device device) const;
  // Empty: no slice at this index.
  std::optional<Device> MigSlice(Device device, int index) const;

  // Empty where the driver does not tell all of it.
  std::optional<Computing> ReadComputing(Device device) const;
  // Takes a few milliseconds, or much longer of a GPU in trouble. Never fails.
  Health ReadHealth(Device device) const;

  // From now on WaitForXid tells of these devices. kUnimplemented: not with these GPUs or this driver.
  Status WatchXids(const std::vector<Device>& devices);
  // The next error, waited for at most `limit`; empty: none came. After WatchXids only.
  Result<std::optional<XidEvent>> WaitForXid(std::chrono::milliseconds limit) const;

 private:
  struct Functions;
  explicit NvmlLibrary(std::unique_ptr<Functions> functions);

  Status ToStatus(int code, const char* operation) const;

  std::unique_ptr<Functions> functions_;  // empty after a move
};

}  // namespace lockstep::placement
