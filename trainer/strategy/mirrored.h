#pragma once

#include <atomic>
#include <chrono>
#include <vector>

#include "trainer/strategy/replicated.h"

namespace lockstep::trainer::strategy {

// The ranks of one machine update the one copy they share. The flat buffers are cut into chunks. A chunk may
// be worked on when every rank has announced that its gradients are complete (and, by the model's promise,
// that it reads these parameters no more); any rank may then claim it, sum its gradients in the order of
// ranks and update it. So whoever is late or has to share a core is waited for once, not twice, in a step:
// those that are awake do the work, and those that sleep are woken into the next step.
//
// A chunk's slots are in the cache of the core that last worked on it, and from there it takes another core
// several times as long to get them. So a rank first takes the chunks that were last done on the core it runs
// on, and others only when they are left lying.
class Mirrored final : public Replicated {
 public:
  using Replicated::Replicated;

 protected:
  StepResult Step(const Batch& batch) override;
  void Prepare() override;

 private:
  using Clock = std::chrono::steady_clock;

  void Announce(size_t end);
  void PutOut(size_t end);
  bool WorkOnNear();
  bool WorkOnFar();
  bool TryChunk(size_t chunk, uint64_t claim);
  size_t ChunkEnd(size_t chunk) const;

  std::span<std::atomic<uint64_t>> claims_;  // by chunk: turns done or claimed << 16 | core of the last + 1
  // The copies, by rank, and by rank and chunk whether there is one: the turn it is of, from 1.
  std::vector<float*> copies_;
  std::span<std::atomic<uint64_t>> copied_;
  std::vector<float*> from_;
  collectives::SharedSegment claims_segment_, copies_segment_;
  size_t chunks_ = 0;
  size_t next_out_ = 0, next_near_ = 0, next_far_ = 0;  // this turn, chunks below have been passed by
  Clock::duration summing_{}, updating_{};
};

}  // namespace lockstep::trainer::strategy
