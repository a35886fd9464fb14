#pragma once

#include <bit>
#include <cstdint>

namespace lockstep::trainer {

// The upper half of a float32. Only storage: arithmetic is done in float32.
struct BFloat16 {
  uint16_t bits = 0;
};

// Rounds to nearest, ties to even; a NaN stays a (quiet) NaN and an overflow becomes infinity.
constexpr BFloat16 ToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x0040u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// Exact.
constexpr float ToFloat(BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

}  // namespace lockstep::trainer
