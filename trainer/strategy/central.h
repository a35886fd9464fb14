#pragma once

#include <vector>

#include "trainer/strategy/replicated.h"

namespace lockstep::trainer::strategy {

// The ranks of one machine compute the gradients, and the first of them alone sums them and updates the
// parameters, which all read where they are: TensorFlow's CentralStorage, and Mirrored where crossDeviceOps
// asks for such a sum. Mirrored of itself shares that work among all ranks, and is faster.
//
// The sum goes along a tree whose root is the first rank. ReductionToOneDevice: all others are its children.
// HierarchicalCopy: a binomial tree, so that a sum of n ranks is log2(n) long; each rank adds its children's
// to its own, in the order of ranks.
class Central final : public Replicated {
 public:
  using Replicated::Replicated;

  // Of local rank `rank` of `size`, in rising order. Binomial: rank + 1, rank + 2, rank + 4 … below the next
  // multiple of the largest power of two that divides `rank`.
  static std::vector<int> ChildrenOf(int rank, int size, bool binomial);

 protected:
  StepResult Step(const Batch& batch) override;
  void Prepare() override;
  bool CanBeCompleted() const override;
  const float* GradientOf(size_t piece, float* to) override;
  double SquaredNormOfAll() const override { return shared_->squared_norm; }

 private:
  using Clock = std::chrono::steady_clock;

  bool Advance();
  void UpdateAll();

  std::vector<int> children_;
  std::vector<float*> from_;  // this rank's gradients, then its children's
  size_t own_ = 0;            // this rank's gradients of this step are complete below this offset
  size_t summed_ = 0;         // and so are those of its whole subtree, in its own buffer
  int64_t bucket_ = 0;        // pieces that were passed on in this step
  Clock::duration summing_{}, updating_{};
};

}  // namespace lockstep::trainer::strategy
