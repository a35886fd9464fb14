#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "trainer/backend/cuda/number_checks.h"
#include "trainer/tensor/buffer.h"

namespace lockstep::trainer::cuda {

// What the kernels of one backend share; the backend owns all of it and outlives them. The device is the
// calling thread's current one.
struct KernelContext {
  cudaStream_t stream = nullptr;  // the compute stream: all work goes here, in order
  cublasLtHandle_t blas = nullptr;
  // Scratch memory of the products. One is enough, because they run one after another.
  void* workspace = nullptr;  // 256-byte aligned
  size_t workspace_bytes = 0;
  Allocator* allocator = nullptr;  // device memory
  Allocator* pinned = nullptr;     // host memory that the device reads and writes in place
  NumberChecks* checks = nullptr;  // of what kernels find in the data
  int capability = 0;              // 90 for sm_90
  int multiprocessors = 0;
  std::string device;  // for messages: "GPU 0 (NVIDIA H200)"
};

// What NVIDIA recommends (cuBLAS, "cublasSetWorkspace": 32 MiB on sm_90 and later, 4 MiB before).
constexpr size_t WorkspaceBytesFor(int capability) {
  return capability >= 90 ? size_t{32} << 20 : size_t{4} << 20;
}

}  // namespace lockstep::trainer::cuda
