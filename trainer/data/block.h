#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "trainer/data/dataset.h"

namespace lockstep::trainer::data {

// A block: this header, padding, the samples [samples, features], padding, the targets [samples]. It never
// leaves the machine, so it is in the machine's own layout and has no version but that of the program.
inline constexpr char kBlockMagic[8] = {'L', 'S', 'B', 'L', 'O', 'C', 'K', '1'};

struct BlockHeader {
  char magic[8] = {'L', 'S', 'B', 'L', 'O', 'C', 'K', '1'};
  uint64_t block_bytes = 0;
  DatasetPlan plan;
};
static_assert(std::is_trivially_copyable_v<BlockHeader>);

// Makes the block viewable: the last thing that is written.
void WriteBlockHeader(const DatasetPlan& plan, std::span<std::byte> block);

}  // namespace lockstep::trainer::data
