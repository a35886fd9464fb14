#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::trainer::checkpoint {

// The Castagnoli CRC (RFC 3720, B.4): finds every single flipped bit and every burst of up to 32 bits for
// certain, and anything else but for 1 in 2^32. Chosen over a faster hash because x86 has an instruction for
// it: 10 GB/s, so that a checkpoint of 3.2 MB takes a third of a millisecond, less than writing it. `crc`
// continues one over what came before.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

// The same without the instruction.
uint32_t PortableCrc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace lockstep::trainer::checkpoint
