#include "trainer/checkpoint/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace lockstep::trainer::checkpoint {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected
constexpr size_t kSlices = 8;

using Tables = std::array<std::array<uint32_t, 256>, kSlices>;

// Slicing by eight (Kounavis, Berry: "Novel table lookup-based algorithms for high-performance CRC
// generation", 2008).
constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t slice = 1; slice < kSlices; ++slice) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[slice - 1][byte];
      tables[slice][byte] = before >> 8 ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

#if defined(__x86_64__)

[[gnu::target("sse4.2")]] uint32_t HardwareCrc32c(std::span<const std::byte> bytes, uint32_t crc) {
  uint64_t state = ~crc;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= sizeof(uint64_t); left -= sizeof(uint64_t), at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, at, sizeof word);
    state = _mm_crc32_u64(state, word);
  }
  for (; left > 0; --left, ++at) {
    state = _mm_crc32_u8(static_cast<uint32_t>(state), std::to_integer<uint8_t>(*at));
  }
  return ~static_cast<uint32_t>(state);
}

#endif

}  // namespace

uint32_t PortableCrc32c(std::span<const std::byte> bytes, uint32_t crc) {
  crc = ~crc;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= kSlices; left -= kSlices, at += kSlices) {
    uint32_t next = 0;
    for (size_t i = 0; i < kSlices; ++i) {
      const uint32_t mixed = std::to_integer<uint32_t>(at[i]) ^ (i < 4 ? crc >> (8 * i) & 0xff : 0);
      next ^= kTables[kSlices - 1 - i][mixed];
    }
    crc = next;
  }
  for (; left > 0; --left, ++at) crc = crc >> 8 ^ kTables[0][(crc ^ std::to_integer<uint32_t>(*at)) & 0xff];
  return ~crc;
}

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return HardwareCrc32c(bytes, crc);
#endif
  return PortableCrc32c(bytes, crc);
}

}  // namespace lockstep::trainer::checkpoint
