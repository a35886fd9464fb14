#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "trainer/backend/cuda/budget.h"
#include "trainer/backend/cuda_plugin.h"
#include "trainer/backend/device_backend.h"
#include "trainer/tensor/buffer.h"

// Memory of one device under a policy, and the host memory that it reaches. Nothing else in the trainer
// allocates either (cudaMalloc and its kin appear in memory.cc only).
//
//   Growth, Limit, Fraction: a pool of the driver's (cudaMallocFromPoolAsync) that never gives back;
//                            a counter refuses what goes beyond the limit
//   Preallocate:             one allocation at the start; an Arena cuts it
//
// Allocations are for work on `stream` and for whatever comes after it; memory is freed when the stream has
// come past what was enqueued until then.
namespace lockstep::trainer::cuda {

class DeviceMemory {
 public:
  struct Options {
    DeviceOptions policy;  // and which device
    std::string device;    // for messages
    cudaStream_t stream = nullptr;
  };

  // Makes the device the calling thread's current one, as everything here does. Throws OutOfMemory if what is
  // to be preallocated cannot be had.
  static std::unique_ptr<DeviceMemory> Make(const Options& options);
  virtual ~DeviceMemory() = default;

  // Safe for threads.
  virtual Allocator& pooled() = 0;
  // Of cudaMalloc: has an IPC handle. (Under Preallocate it lies within the one allocation: MemoryToShare.)
  virtual Allocator& shareable() = 0;
  virtual Allocator& pinned() = 0;
  virtual DeviceMemoryUse use() = 0;

  // While work is recorded nothing can be allocated: Allocate throws NotRecordable, and memory is freed
  // afterwards.
  virtual void SetRecording(bool recording) = 0;
};

// Memory as other processes are told of it: `pointer` of shareable(), as an allocation and an offset in it.
struct MemoryToShare {
  cudaIpcMemHandle_t allocation;
  size_t offset = 0;
};
MemoryToShare ShareMemory(void* pointer);

}  // namespace lockstep::trainer::cuda
