#pragma once

#include <algorithm>
#include <cstdint>

#include "trainer/backend/cuda/kernel_context.h"
#include "trainer/backend/cuda/launch.h"
#include "trainer/backend/cuda/numbers.cuh"

namespace lockstep::trainer::cuda {

// Values of which each depends on those in its own place alone.
inline constexpr int kElementThreads = 256;

template <int kPack, bool kBinary, typename Function>
__global__ void __launch_bounds__(kElementThreads)
    Elements(int64_t count, Function function, const float* a, const float* b, float* y) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kElementThreads * kPack;
  int64_t i = (static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x) * kPack;
  for (; i + kPack <= count; i += stride) {
    const Pack<float, kPack> left = LoadPack<kPack>(a + i);
    Pack<float, kPack> right{};
    if constexpr (kBinary) right = LoadPack<kPack>(b + i);
    Pack<float, kPack> result;
#pragma unroll
    for (int j = 0; j < kPack; ++j) result.values[j] = function(left.values[j], right.values[j]);
    StorePack(y + i, result);
  }
  for (; i < count; ++i) y[i] = function(a[i], kBinary ? b[i] : 0.0f);
}

// Enough blocks to fill the device; each has the more to do the more there is.
inline unsigned ElementBlocks(int64_t threads, const KernelContext& context) {
  constexpr int64_t kBlocksOfProcessor = 16;
  return static_cast<unsigned>(std::clamp<int64_t>(CeilDiv(threads, kElementThreads), 1,
                                                   kBlocksOfProcessor * context.multiprocessors));
}

// y_i = function(a_i, b_i); y may be one of them.
template <typename Function>
void ForEachElement(int64_t count, Function function, const float* a, const float* b, float* y,
                    const KernelContext& context) {
  constexpr int kWidest = 4;
  if (count == 0) return;
  if (Aligned(sizeof(Pack<float, kWidest>), a, b, y)) {
    LOCKSTEP_LAUNCH((Elements<kWidest, true, Function>), ElementBlocks(CeilDiv(count, kWidest), context),
                    kElementThreads, 0, context.stream, count, function, a, b, y);
  } else {
    LOCKSTEP_LAUNCH((Elements<1, true, Function>), ElementBlocks(count, context), kElementThreads, 0,
                    context.stream, count, function, a, b, y);
  }
}

// y_i = function(x_i, 0).
template <typename Function>
void ForEachElement(int64_t count, Function function, const float* x, float* y,
                    const KernelContext& context) {
  constexpr int kWidest = 4;
  const float* const none = nullptr;
  if (count == 0) return;
  if (Aligned(sizeof(Pack<float, kWidest>), x, y)) {
    LOCKSTEP_LAUNCH((Elements<kWidest, false, Function>), ElementBlocks(CeilDiv(count, kWidest), context),
                    kElementThreads, 0, context.stream, count, function, x, none, y);
  } else {
    LOCKSTEP_LAUNCH((Elements<1, false, Function>), ElementBlocks(count, context), kElementThreads, 0,
                    context.stream, count, function, x, none, y);
  }
}

}  // namespace lockstep::trainer::cuda
