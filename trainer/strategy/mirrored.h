#pragma once

#include <atomic>
#include <chrono>
#include <vector>

#include "trainer/strategy/replicated.h"

namespace lockstep::trainer::strategy {

// The ranks of one machine update the one copy they share. The flat buffers are cut into chunks. A chunk may
// be worked on when every rank has announced that its gradients are complete (and, by the model's promise,
// that it reads these parameters no more); any rank may then claim it, sum its gradients in the order of
// ranks and update it. Each prefers its own chunks, for its cache, and takes what others leave. So whoever is
// late or has to share a core is waited for once, not twice, in a step: those that are awake do the work, and
// those that sleep are woken into the next step.
class Mirrored final : public Replicated {
 public:
  using Replicated::Replicated;
  StepResult TrainStep(const Batch& batch) override;

 protected:
  void Prepare() override;

 private:
  using Clock = std::chrono::steady_clock;

  void Announce(size_t end);
  bool WorkOnSome();
  bool TryChunk(size_t chunk);
  size_t ChunkEnd(size_t chunk) const;

  std::span<std::atomic<uint64_t>> claims_;  // by chunk: turns claimed
  collectives::SharedSegment claims_segment_;
  size_t chunks_ = 0;
  size_t next_own_ = 0, next_any_ = 0;  // chunks below have been claimed, this turn
  Clock::duration summing_{}, updating_{};
};

}  // namespace lockstep::trainer::strategy
