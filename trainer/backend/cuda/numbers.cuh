#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "trainer/tensor/bfloat16.h"

// Element types in kernels. (As in trainer/tensor/bfloat16.h, whose functions are the host's.)
namespace lockstep::trainer::cuda {

// Neighbouring elements that are loaded and stored by one instruction: 16 bytes at most, and aligned.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T values[kCount];
};

template <int kCount, typename T>
__device__ inline Pack<T, kCount> LoadPack(const T* from) {
  return *reinterpret_cast<const Pack<T, kCount>*>(from);
}

template <int kCount, typename T>
__device__ inline void StorePack(T* to, const Pack<T, kCount>& pack) {
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

__device__ inline float ToFloat32(float value) { return value; }
__device__ inline float ToFloat32(uint8_t value) { return static_cast<float>(value); }
__device__ inline float ToFloat32(BFloat16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float wide;
  memcpy(&wide, &bits, sizeof wide);
  return wide;
}

// To the nearest, ties to even; a NaN stays one.
__device__ inline void Round(float value, float* to) { *to = value; }
__device__ inline void Round(float value, BFloat16* to) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  to->bits =
      static_cast<uint16_t>(nan ? (bits >> 16) | 0x0040u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Whether packs of `bytes` may start at each of these.
template <typename... Pointers>
bool Aligned(size_t bytes, Pointers... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % bytes == 0) && ...);
}

__host__ __device__ constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace lockstep::trainer::cuda
