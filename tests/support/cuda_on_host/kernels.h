#pragma once

// Compiled in front of every .cu file of liblockstep-cuda-on-host.so: what nvcc knows by itself about a
// kernel, for g++. Only what our kernels use; each with the meaning that the CUDA C++ Programming Guide gives
// it.

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/support/cuda_on_host/block.h"
#include "tests/support/cuda_on_host/launch.h"

#define LOCKSTEP_LAUNCH(kernel, grid, block, shared, stream, ...)                                       \
  do {                                                                                                  \
    ::lockstep::cuda_on_host::Launch(#kernel, kernel, dim3(grid), dim3(block), (shared),                \
                                     (stream)__VA_OPT__(, ) __VA_ARGS__);                               \
    ::lockstep::trainer::cuda::CheckCuda(cudaGetLastError(), "launch of " #kernel, __FILE__, __LINE__); \
  } while (false)
#define LOCKSTEP_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(::lockstep::cuda_on_host::Here().dynamic_shared)

// The threads of a block are fibers of one thread, and one thread runs one block at a time.
#undef __shared__
#define __shared__ static thread_local
#define __launch_bounds__(...)

#define threadIdx (::lockstep::cuda_on_host::Here().thread)
#define blockIdx (::lockstep::cuda_on_host::Here().block)
#define blockDim (::lockstep::cuda_on_host::Here().block_size)
#define gridDim (::lockstep::cuda_on_host::Here().grid_size)
#define warpSize 32

inline void __syncthreads() { ::lockstep::cuda_on_host::WaitForBlock(false); }
inline int __syncthreads_or(int vote) { return ::lockstep::cuda_on_host::WaitForBlock(vote != 0) > 0; }
inline int __syncthreads_count(int vote) { return ::lockstep::cuda_on_host::WaitForBlock(vote != 0); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { ::lockstep::cuda_on_host::WaitForWarp(mask, 0); }

namespace lockstep::cuda_on_host {

// A lane outside of the warp, or of the part of `width` lanes, gives one's own value; one that has returned,
// or is not in the mask, gives nonsense.
template <typename T>
T Shuffle(unsigned mask, T value, int from, bool in_range) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "as CUDA has it: int, long, float, double and their kin");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  const WarpValues& values = WaitForWarp(mask, bits);
  if (!in_range) return value;
  bits = (values.came >> from & 1u) != 0 ? values.of_lane[from] : 0x7ff4dead7fa4deadULL;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline int Part(int width) { return LaneHere() / width * width; }

}  // namespace lockstep::cuda_on_host

template <typename T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  using namespace lockstep::cuda_on_host;
  return Shuffle(mask, value, Part(width) + (from & (width - 1)), true);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  using namespace lockstep::cuda_on_host;
  const int from = LaneHere() + static_cast<int>(delta);
  return Shuffle(mask, value, from, from < Part(width) + width);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  using namespace lockstep::cuda_on_host;
  const int from = LaneHere() - static_cast<int>(delta);
  return Shuffle(mask, value, from, from >= Part(width));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  using namespace lockstep::cuda_on_host;
  const int from = LaneHere() ^ lanes;
  return Shuffle(mask, value, from, from < Part(width) + width);
}
inline unsigned __ballot_sync(unsigned mask, int vote) {
  const auto& values = ::lockstep::cuda_on_host::WaitForWarp(mask, vote != 0 ? 1 : 0);
  unsigned ballot = 0;
  for (int lane = 0; lane < ::lockstep::cuda_on_host::kWarpSize; ++lane) {
    if ((values.came >> lane & 1u) != 0 && values.of_lane[lane] != 0) ballot |= 1u << lane;
  }
  return ballot;
}
inline int __any_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) != 0; }
inline int __all_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote == 0) == 0; }

// (As an access, because the thread sanitizer does not see fences.)
inline std::atomic<int> lockstep_fence{0};
inline void __threadfence_block() { lockstep_fence.fetch_add(1); }
inline void __threadfence() { lockstep_fence.fetch_add(1); }
inline void __threadfence_system() { lockstep_fence.fetch_add(1); }

// Returns what was there; other streams, and processes, may be at it too.
template <typename T, typename Change>
T lockstep_atomic_change(T* address, Change change) {
  T was;
  __atomic_load(address, &was, __ATOMIC_SEQ_CST);
  for (;;) {
    T next = change(was);
    if (__atomic_compare_exchange(address, &was, &next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      return was;
  }
}
template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return lockstep_atomic_change(address, [&](T was) { return static_cast<T>(was + value); });
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return lockstep_atomic_change(address, [&](T was) { return std::max(was, value); });
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return lockstep_atomic_change(address, [&](T was) { return std::min(was, value); });
}
template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return lockstep_atomic_change(address, [&](T) { return value; });
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  return lockstep_atomic_change(address, [&](T was) { return was == compare ? value : was; });
}
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return lockstep_atomic_change(address, [&](unsigned was) { return was >= limit ? 0 : was + 1; });
}

template <typename T>
T __ldg(const T* address) {
  return *address;
}
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline unsigned __float_as_uint(float a) { return std::bit_cast<unsigned>(a); }
inline float __uint_as_float(unsigned a) { return std::bit_cast<float>(a); }
inline int __popc(unsigned a) { return std::popcount(a); }
inline int __clz(int a) { return std::countl_zero(static_cast<unsigned>(a)); }
using std::max;
using std::min;
