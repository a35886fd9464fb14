#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/data/range.h"

namespace lockstep::trainer::data {

// Where in the training data a job is: `offset` samples of the epoch's order are done. Part of a checkpoint's
// state. It counts samples and not batches, so it holds when the batch's size changes.
struct Position {
  int64_t epoch = 0;  // from 0
  int64_t offset = 0;

  friend bool operator==(const Position&, const Position&) = default;
};

// The order of the training samples, cut into global batches, cut into the ranks' shards.
//
// An epoch's order is a permutation keyed by (seed, epoch) and nothing else; a batch is a consecutive range
// of it, and a rank's shard a consecutive range of the batch: over all ranks every sample comes once an
// epoch, and the union of the shards is the same batch whatever the world's size. One thread at a time; every
// rank has its own.
class Sampler {
 public:
  struct Options {
    int64_t samples = 0;     // of the training set: 1 … 2^32 - 1
    int64_t batch_size = 0;  // global; at least 1
    uint64_t seed = 0;
    bool shuffle = true;  // false: in the order of the data set
  };

  // Throws BadData when the options are nonsense.
  explicit Sampler(const Options& options);

  // The batches of an epoch; the last one may be smaller.
  int64_t batches_per_epoch() const;

  // The global batch at `position` as a range of the epoch's order: where it starts, and how many samples it
  // has. Throws BadData for a position outside the data.
  Range BatchAt(Position position) const;
  // Where the batch after the one at `position` is.
  Position Next(Position position) const;

  // The sample numbers of `rank`'s shard of the global batch at `position`; possibly none. Valid until the
  // next call. The first call of an epoch computes its order (about 0.2 ms for 50,000 samples).
  std::span<const uint32_t> Shard(Position position, int64_t rank, int64_t world);
  // An epoch's whole order; valid until a call for another epoch.
  std::span<const uint32_t> Order(int64_t epoch);

 private:
  Options options_;
  int64_t epoch_ = -1;  // whose order is in order_
  std::vector<uint32_t> order_;
};

}  // namespace lockstep::trainer::data
