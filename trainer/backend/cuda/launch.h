#pragma once

#include <cuda_runtime.h>

#include "trainer/backend/cuda/check.h"

// How a kernel is launched; in .cu files only:
//   LOCKSTEP_LAUNCH(AddBias, blocks, kThreads, 0, stream, y, bias, n);
//   LOCKSTEP_LAUNCH((Convert<float, 4>), blocks, kThreads, 0, stream, to, from, n);
// `grid` and `block` are whatever dim3 is made from, `shared` the bytes of dynamic shared memory. Throws as
// LOCKSTEP_CUDA does if the launch is refused; what goes wrong in the kernel comes out at a later call.
//
// In kernels, as everywhere in CUDA: __shared__ arrays, __syncthreads, __syncwarp, the __shfl_…_sync with all
// lanes of the warp taking part, atomicAdd. Dynamic shared memory: LOCKSTEP_DYNAMIC_SHARED(float, scratch);
//
// (The tests compile the same files for the host, with these two macros defined beforehand.)
#ifndef LOCKSTEP_LAUNCH
#define LOCKSTEP_LAUNCH(kernel, grid, block, shared, stream, ...)                                       \
  do {                                                                                                  \
    kernel<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__);                                       \
    ::lockstep::trainer::cuda::CheckCuda(cudaGetLastError(), "launch of " #kernel, __FILE__, __LINE__); \
  } while (false)
#define LOCKSTEP_DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif
