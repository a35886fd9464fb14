#pragma once

#include <atomic>
#include <chrono>
#include <vector>

#include "trainer/strategy/replicated.h"

namespace lockstep::trainer::strategy {

// The ranks of one machine update the one copy they share. When every rank has announced that its gradients
// are complete, they are summed and updated in chunks: any rank may claim one, sum its gradients in the order
// of ranks and update it. So whoever is late or has to share a core is waited for once, not twice, in a step:
// those that are awake do the work, and those that sleep are woken into the next step. The sums are made
// beside the gradients, so that a chunk can be done again from them if its rank is killed over it.
//
// A chunk's slots are in the cache of the core that last worked on it, and from there it takes another core
// several times as long to get them. So a rank first takes the chunks that were last done on the core it runs
// on, and others only when they are left lying.
//
// Where the gradient is clipped by its norm, whoever sums a chunk, over its own gradients, updates it only
// when all are summed.
class Mirrored final : public Replicated {
 public:
  using Replicated::Replicated;

 protected:
  StepResult Step(const Batch& batch) override;
  void Prepare() override;
  bool CanBeCompleted() const override;
  const float* GradientOf(size_t piece, float* to) override;
  double SquaredNormOfAll() const override;

 private:
  using Clock = std::chrono::steady_clock;

  void Announce();
  void PutOut(size_t end);
  bool WorkOnNear();
  bool WorkOnFar();
  bool TryChunk(size_t chunk, uint64_t claim);
  void TraceChunk(size_t chunk, Clock::time_point start, Clock::time_point summed,
                  Clock::time_point updated) const;
  void UpdateClipped();
  size_t ChunkEnd(size_t chunk) const;

  std::span<std::atomic<uint64_t>> claims_;  // by chunk: turns done or claimed << 16 | core of the last + 1
  // The copies, by rank, and by rank and chunk whether there is one: the turn it is of, from 1.
  std::vector<float*> copies_;
  std::span<std::atomic<uint64_t>> copied_;
  std::vector<float*> from_;
  Buffer sum_;  // of a chunk
  // Where the gradient is clipped by its norm: Σ g² by chunk, and the chunks that this rank has summed in
  // this turn and is to update when the norm is known.
  std::span<double> norms_;
  std::span<std::atomic<uint64_t>> summed_by_;  // local rank, by chunk
  std::vector<size_t> mine_;
  collectives::SharedSegment claims_segment_, copies_segment_, norms_segment_;
  size_t chunks_ = 0;
  size_t next_out_ = 0, next_near_ = 0, next_far_ = 0;  // this turn, chunks below have been passed by
  Clock::duration summing_{}, updating_{};
};

}  // namespace lockstep::trainer::strategy
