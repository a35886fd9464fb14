#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

// cuda_on_host/ is a stand-in, for tests only, for the parts of the CUDA runtime, cuBLASLt, cuDNN and NCCL
// that the trainer uses: declared by the vendors' own headers, carried out by the processor. It is compiled
// together with the same sources as liblockstep-cuda.so into liblockstep-cuda-on-host.so, so that everything
// but the vendors' own code is executed where there is no GPU.
//
// It is honest: each stream has a thread of its own that works behind the host, new memory holds nonsense,
// graphs run in the least convenient order their edges allow, and what a device would punish is an error here
// (memory of the host given to a kernel, freed memory, a recording that waits). What it accepts, a device
// accepts.
//
// This header is what its parts share. The environment says what devices there are (devices.h).
namespace lockstep::cuda_on_host {

// Enqueues on `stream`, or records where it is being captured. `what` names the work in messages. `work` runs
// on the stream's thread; it may block, as a device would spin. Null is the default stream. Errors: as the
// runtime's.
cudaError_t Enqueue(cudaStream_t stream, const std::string& what, std::function<void()> work);

// What a device can reach: its own memory (cudaMalloc, a pool's after its allocation ran on its stream, or
// opened from another process) and pinned memory of the host. From work: as it is at that moment.
enum class MemoryKind { kNone, kDevice, kPool, kPinned, kOpened };
struct MemoryPlace {
  MemoryKind kind = MemoryKind::kNone;
  int device = 0;
  const void* base = nullptr;  // of the allocation
  size_t bytes = 0;
};
MemoryPlace Find(const void* pointer);
// As the host sees it when it enqueues: a pool's memory counts from its allocation's call on, until its
// free's.
MemoryPlace FindAllocated(const void* pointer);
// Whether [pointer, pointer + bytes) lies in one allocation that the device can reach, usable now.
bool Reachable(const void* pointer, size_t bytes);
bool InDeviceMemory(const void* pointer, size_t bytes);

// The device stops, as after an illegal access: from now on every call returns this. Prints `why`.
void Fault(cudaError_t error, const std::string& why);

// Every entry of the runtime returns through this: keeps the calling thread's last error.
cudaError_t Return(cudaError_t error);

int CurrentDevice();
inline constexpr const char* kName = "cuda_on_host";  // in messages

}  // namespace lockstep::cuda_on_host
