#include "trainer/backend/cuda/arena.h"

#include <iterator>

namespace lockstep::trainer::cuda {

Arena::Arena(size_t bytes) : bytes_(bytes / kGranularity * kGranularity) {
  if (bytes_ > 0) AddFree(0, bytes_);
}

std::optional<size_t> Arena::Take(size_t bytes) {
  if (bytes > bytes_) return std::nullopt;  // (rounding up a larger one could overflow)
  const size_t rounded = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  const auto fits = by_size_.lower_bound({rounded, 0});
  if (fits == by_size_.end()) return std::nullopt;
  const auto [piece, offset] = *fits;
  RemoveFree(free_.find(offset));
  if (piece > rounded) AddFree(offset + rounded, piece - rounded);
  taken_.emplace(offset, rounded);
  used_ += rounded;
  return offset;
}

void Arena::Give(size_t offset) {
  const auto taken = taken_.find(offset);
  size_t begin = offset;
  size_t end = offset + taken->second;
  used_ -= taken->second;
  taken_.erase(taken);
  if (const auto after = free_.find(end); after != free_.end()) {
    end += after->second;
    RemoveFree(after);
  }
  if (const auto next = free_.lower_bound(begin); next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      RemoveFree(before);
    }
  }
  AddFree(begin, end - begin);
}

void Arena::AddFree(size_t offset, size_t bytes) {
  free_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
}

void Arena::RemoveFree(std::map<size_t, size_t>::iterator piece) {
  by_size_.erase({piece->second, piece->first});
  free_.erase(piece);
}

}  // namespace lockstep::trainer::cuda
