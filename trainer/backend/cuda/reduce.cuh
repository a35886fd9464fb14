#pragma once

#include <cuda_runtime.h>

namespace lockstep::trainer::cuda {

inline constexpr int kWarp = 32;

// Over the lanes of a warp, all taking part; every lane has the result. `combine` is commutative, so all have
// the same bits, and the order is fixed, so every run has.
template <typename T, typename Combine>
__device__ inline T ReduceWarp(T value, Combine combine) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

// For sums over blocks in one launch: each block writes its part, and the one that comes last adds them all,
// in the order of the blocks. True in that one alone, which then sees what all the others wrote. `arrived`
// is 0 before the launch and after it. All threads of all `blocks` blocks call it.
__device__ inline bool LastToArrive(unsigned* arrived, unsigned blocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    last = atomicAdd(arrived, 1u) == blocks - 1;
    if (last) *arrived = 0;
  }
  __syncthreads();
  __threadfence();
  return last;
}

}  // namespace lockstep::trainer::cuda
