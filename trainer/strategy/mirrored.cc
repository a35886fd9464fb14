#include "trainer/strategy/mirrored.h"

#include <algorithm>

namespace lockstep::trainer::strategy {
namespace {

// 64 KiB: small enough to share the work of a small model evenly, large enough for the claim to cost nothing.
constexpr size_t kChunk = 16 * 1024;

// It takes about as long to wake a rank as to do this many chunks.
constexpr size_t kWorthWaking = 16;

}  // namespace

void Mirrored::Prepare() {
  chunks_ = (total() + kChunk - 1) / kChunk;
  claims_segment_ = group_->CreateSegment("claims", chunks_ * sizeof(std::atomic<uint64_t>), deadline());
  claims_ = claims_segment_.View<std::atomic<uint64_t>>(0, chunks_);
}

StepResult Mirrored::TrainStep(const Batch& batch) {
  next_own_ = static_cast<size_t>(local_rank());
  next_any_ = 0;
  summing_ = updating_ = {};
  const double penalty = Penalty();
  const LossResult result =
      model_->TrainStep(batch.inputs, batch.labels, batch.local_samples,
                        1.0f / static_cast<float>(batch.global_samples), [&](int64_t, int64_t end) {
                          // The last range is announced below, together with the loss.
                          if (static_cast<size_t>(end) == total()) return;
                          Announce(static_cast<size_t>(end));
                          while (WorkOnSome()) {
                          }
                        });
  const auto start = Clock::now();
  const auto updating_before = updating_, summing_before = summing_;
  const auto slot = static_cast<size_t>(turn_ % 2);
  members_[local_rank()].reports[slot] = ReportOf(result, batch);
  Announce(total());

  const uint64_t all_done = (turn_ + 1) * chunks_;
  const auto done = [&] { return shared_->chunks_done.load() == all_done; };
  group_->Wait(
      StepName() + "all-reduce",
      [&] { return WorkOnSome() ? Look::kProgress
                   : done()     ? Look::kDone
                                : Look::kIdle; },
      [&](int r) {
        // Whoever has not come; and when all have, whoever has claimed a chunk.
        return !done() &&
               (Announced(turn_) == total() || members_[r].announced.load() < Position(turn_, total()));
      },
      deadline());

  model_->ParametersChanged(0, model_->layout().total);
  Report totals;
  for (int r = 0; r < local_size(); ++r) totals += members_[r].reports[slot];
  StepResult step = Finished(totals, batch, penalty);
  const auto exposed = Clock::now() - start - (updating_ - updating_before) + summing_before;
  step.collective_seconds = std::chrono::duration<double>(exposed).count();
  step.collective_bytes = static_cast<int64_t>(total() * sizeof(float));
  return step;
}

void Mirrored::Announce(size_t end) {
  members_[local_rank()].announced.store(Position(turn_, end));
  // Sleepers are woken when all is done. Before, only for much work that there are cores for.
  const size_t ready = Announced(turn_) / kChunk;
  if (ready >= next_any_ + kWorthWaking && group_->awake() < group_->room()) group_->Wake();
}

bool Mirrored::WorkOnSome() {
  const size_t announced = Announced(turn_);
  const auto ready = [&](size_t chunk) { return chunk < chunks_ && ChunkEnd(chunk) <= announced; };
  while (ready(next_own_)) {
    const size_t chunk = next_own_;
    next_own_ += static_cast<size_t>(local_size());
    if (TryChunk(chunk)) return true;
  }
  while (ready(next_any_)) {
    if (TryChunk(next_any_++)) return true;
  }
  return false;
}

bool Mirrored::TryChunk(size_t chunk) {
  uint64_t unclaimed = turn_;
  if (claims_[chunk].load() != turn_ || !claims_[chunk].compare_exchange_strong(unclaimed, turn_ + 1))
    return false;
  const size_t begin = chunk * kChunk, end = ChunkEnd(chunk);
  const auto start = Clock::now();
  SumGradients(begin, end);
  const auto summed = Clock::now();
  Update(begin, end);
  summing_ += summed - start;
  updating_ += Clock::now() - summed;
  if (shared_->chunks_done.fetch_add(1) + 1 == (turn_ + 1) * chunks_) group_->Wake();
  return true;
}

size_t Mirrored::ChunkEnd(size_t chunk) const { return std::min((chunk + 1) * kChunk, total()); }

}  // namespace lockstep::trainer::strategy
