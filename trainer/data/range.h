#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep::trainer::data {

// `count` things from `first` on.
struct Range {
  int64_t first = 0;
  int64_t count = 0;

  int64_t end() const { return first + count; }
  friend bool operator==(const Range&, const Range&) = default;
};

// The part of `whole` that belongs to `rank` of `world`: contiguous and near-equal, in the order of ranks,
// the first ones get one more; possibly empty. Together the parts are `whole`, whatever the world's size.
inline Range ShardOf(Range whole, int64_t rank, int64_t world) {
  const int64_t each = whole.count / world, more = whole.count % world;
  return {whole.first + rank * each + std::min(rank, more), each + (rank < more ? 1 : 0)};
}

}  // namespace lockstep::trainer::data
