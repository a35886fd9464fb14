#include "trainer/data/gather.h"

#include <bit>
#include <cstring>
#include <type_traits>

namespace lockstep::trainer::data {
namespace {

uint16_t ToBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// A plain loop that the compiler vectorises (this file is compiled with -O3), inlined into each function
// below, and so compiled for the instructions which that one names. (GCC 12 makes poor code of its own vector
// types here, and warns about its own AVX-512 intrinsics.)
template <typename In, typename Out>
[[gnu::always_inline]] inline void ConvertRow(const std::byte* in, size_t n, float scale,
                                              Out* __restrict out) {
  for (size_t i = 0; i < n; ++i) {
    In stored;
    std::memcpy(&stored, in + i * sizeof stored, sizeof stored);
    const float value = static_cast<float>(stored) * scale;
    if constexpr (std::is_same_v<Out, float>) {
      out[i] = value;
    } else {
      out[i] = ToBfloat16(value);
    }
  }
}

template <typename In, typename Out>
void ConvertPortably(const std::byte* in, size_t n, float scale, Out* out) {
  ConvertRow<In>(in, n, scale, out);
}

constexpr RowConverters kPortable{ConvertPortably<uint8_t, float>, ConvertPortably<float, float>,
                                  ConvertPortably<uint8_t, uint16_t>, ConvertPortably<float, uint16_t>};

#if defined(__x86_64__)

template <typename In, typename Out>
[[gnu::target("avx2")]] void ConvertByAvx2(const std::byte* in, size_t n, float scale, Out* out) {
  ConvertRow<In>(in, n, scale, out);
}

template <typename In, typename Out>
[[gnu::target("avx512f,avx512bw,avx512vl,prefer-vector-width=512")]] void ConvertByAvx512(const std::byte* in,
                                                                                          size_t n,
                                                                                          float scale,
                                                                                          Out* out) {
  ConvertRow<In>(in, n, scale, out);
}

constexpr RowConverters kAvx2{ConvertByAvx2<uint8_t, float>, ConvertByAvx2<float, float>,
                              ConvertByAvx2<uint8_t, uint16_t>, ConvertByAvx2<float, uint16_t>};
constexpr RowConverters kAvx512{ConvertByAvx512<uint8_t, float>, ConvertByAvx512<float, float>,
                                ConvertByAvx512<uint8_t, uint16_t>, ConvertByAvx512<float, uint16_t>};

#endif

}  // namespace

const RowConverters* PortableRowConverters() { return &kPortable; }

#if defined(__x86_64__)
const RowConverters* Avx2RowConverters() { return __builtin_cpu_supports("avx2") ? &kAvx2 : nullptr; }

const RowConverters* Avx512RowConverters() {
  const bool supported = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512vl");
  return supported ? &kAvx512 : nullptr;
}
#else
const RowConverters* Avx2RowConverters() { return nullptr; }
const RowConverters* Avx512RowConverters() { return nullptr; }
#endif

const RowConverters& BestRowConverters() {
  if (const RowConverters* best = Avx512RowConverters()) return *best;
  if (const RowConverters* good = Avx2RowConverters()) return *good;
  return kPortable;
}

}  // namespace lockstep::trainer::data
