#pragma once

#include <cstdint>
#include <span>

namespace lockstep::trainer {

// What sums a few numbers over the replicas of a job in the middle of a pass; a strategy provides it.
class ReplicaSum {
 public:
  virtual ~ReplicaSum() = default;
  // The sum over the replicas, added in their order, in place: the same bits on each. Every replica makes the
  // same calls with the same sizes, those without samples too. Throws CollectiveLost, at the latest at the
  // strategy's deadline.
  virtual void Sum(std::span<double> values) = 0;
};

// Randomness in a pass is keyed by these and by the layer, and so depends neither on which replica has a
// sample nor on what was computed before.
struct RandomKeys {
  uint64_t seed = 0;
  int64_t epoch = 0;
  std::span<const uint32_t>
      samples;  // the number of each of the n samples in the data set; outlives the pass
};

// What layers know of a pass over n samples, beside the samples.
struct Pass {
  int64_t n = 0;  // of this process; may be 0 where others have some, see Layer::sums_over_replicas
  bool training = false;
  RandomKeys keys;                 // needed where training is and a layer draws random numbers
  ReplicaSum* replicas = nullptr;  // null: this process is the only replica
};

}  // namespace lockstep::trainer
