#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace lockstep::trainer::cuda {

// Hands out parts of one range of bytes: the smallest free piece that is large enough, cut to size; freed
// pieces grow together with their free neighbours. Knows offsets only, whatever they are offsets into. Not
// safe for threads.
class Arena {
 public:
  // What offsets and sizes are multiples of; CUDA's own allocations are aligned so.
  static constexpr size_t kGranularity = 512;

  explicit Arena(size_t bytes);

  // Where `bytes` > 0 bytes begin; empty when no free piece is large enough.
  std::optional<size_t> Take(size_t bytes);
  // `offset` is what Take returned, and not yet given back.
  void Give(size_t offset);

  size_t bytes() const { return bytes_; }
  size_t used() const { return used_; }
  size_t largest_free() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

 private:
  void AddFree(size_t offset, size_t bytes);
  void RemoveFree(std::map<size_t, size_t>::iterator piece);

  size_t bytes_;
  size_t used_ = 0;
  std::map<size_t, size_t> free_;                // offset → bytes
  std::set<std::pair<size_t, size_t>> by_size_;  // the same as (bytes, offset)
  std::map<size_t, size_t> taken_;               // offset → bytes
};

}  // namespace lockstep::trainer::cuda
