#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "trainer/backend/cuda/check.h"
#include "trainer/backend/cuda/unique_handle.h"

// Owners of what the CUDA runtime and cuBLASLt hand out. All belong to the device that was current when they
// were made.
namespace lockstep::trainer::cuda {

struct StreamTraits {
  using Handle = cudaStream_t;
  static void Destroy(Handle handle) noexcept { LOCKSTEP_CUDA_NOTHROW(cudaStreamDestroy(handle)); }
};
using CudaStream = UniqueHandle<StreamTraits>;
// Never waits for the default stream. Priority: 0, or less (more urgent), as far as the device has them.
CudaStream MakeStream(int priority);
// The most urgent priority there is.
int HighestPriority();

struct EventTraits {
  using Handle = cudaEvent_t;
  static void Destroy(Handle handle) noexcept { LOCKSTEP_CUDA_NOTHROW(cudaEventDestroy(handle)); }
};
using CudaEvent = UniqueHandle<EventTraits>;
// `flags` as cudaEventCreateWithFlags takes them.
CudaEvent MakeEvent(unsigned flags = cudaEventDisableTiming);

struct GraphTraits {
  using Handle = cudaGraph_t;
  static void Destroy(Handle handle) noexcept { LOCKSTEP_CUDA_NOTHROW(cudaGraphDestroy(handle)); }
};
using CudaGraph = UniqueHandle<GraphTraits>;

struct GraphExecTraits {
  using Handle = cudaGraphExec_t;
  static void Destroy(Handle handle) noexcept { LOCKSTEP_CUDA_NOTHROW(cudaGraphExecDestroy(handle)); }
};
using CudaGraphExec = UniqueHandle<GraphExecTraits>;

struct MemoryPoolTraits {
  using Handle = cudaMemPool_t;
  static void Destroy(Handle handle) noexcept { LOCKSTEP_CUDA_NOTHROW(cudaMemPoolDestroy(handle)); }
};
using CudaMemoryPool = UniqueHandle<MemoryPoolTraits>;

struct CublasLtTraits {
  using Handle = cublasLtHandle_t;
  static void Destroy(Handle handle) noexcept { LOCKSTEP_CUDA_NOTHROW(cublasLtDestroy(handle)); }
};
using CublasLtHandle = UniqueHandle<CublasLtTraits>;

}  // namespace lockstep::trainer::cuda
