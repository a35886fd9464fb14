#include "trainer/strategy/mirrored.h"

#include <sched.h>

#include <algorithm>

#include "trainer/collectives/local/stream_copy.h"

namespace lockstep::trainer::strategy {
namespace {

// 64 KiB: small enough to share the work of a small model evenly, large enough for the claim to cost nothing.
constexpr size_t kChunk = 16 * 1024;

// Chunks that are worth waking a rank for.
constexpr size_t kWorthWaking = 4;

// For how long chunks that belong to another core are left to it.
constexpr auto kPatience = std::chrono::microseconds(30);

constexpr int kCoreBits = 16;
uint64_t CoreOf(uint64_t claim) { return claim & ((1 << kCoreBits) - 1); }
uint64_t ThisCore() { return static_cast<uint64_t>(std::max(0, ::sched_getcpu()) + 1); }

}  // namespace

void Mirrored::Prepare() {
  chunks_ = (total() + kChunk - 1) / kChunk;
  const auto ranks = static_cast<size_t>(local_size());
  claims_segment_ =
      group_->CreateSegment("claims", (1 + ranks) * chunks_ * sizeof(std::atomic<uint64_t>), deadline());
  claims_ = claims_segment_.View<std::atomic<uint64_t>>(0, chunks_);
  copied_ = claims_segment_.View<std::atomic<uint64_t>>(claims_.size_bytes(), ranks * chunks_);
  copies_segment_ =
      group_->CreateSegment("copies", ranks * chunks_ * kChunk * sizeof(float), deadline(), false);
  for (size_t r = 0; r < ranks; ++r) {
    copies_.push_back(
        copies_segment_.View<float>(r * chunks_ * kChunk * sizeof(float), chunks_ * kChunk).data());
  }
}

StepResult Mirrored::Step(const Batch& batch) {
  next_out_ = next_near_ = next_far_ = 0;
  summing_ = updating_ = {};
  const double penalty = Penalty();
  const LossResult result =
      model_->TrainStep(batch.inputs, batch.labels, batch.local_samples,
                        1.0f / static_cast<float>(batch.global_samples), [&](int64_t, int64_t end) {
                          // The last range is announced below, together with the loss.
                          if (static_cast<size_t>(end) == total()) return;
                          Announce(static_cast<size_t>(end));
                          while (WorkOnNear()) {
                          }
                        });
  const auto start = Clock::now();
  const auto updating_before = updating_, summing_before = summing_;
  const auto slot = static_cast<size_t>(turn_ % 2);
  members_[local_rank()].reports[slot] = ReportOf(result, batch);
  Announce(total());

  const uint64_t all_done = (turn_ + 1) * chunks_;
  const auto done = [&] { return shared_->chunks_done.load() == all_done; };
  auto idle_since = Clock::time_point::max();
  const auto look = [&] {
    if (WorkOnNear()) {
      idle_since = Clock::time_point::max();
      return Look::kProgress;
    }
    if (done()) return Look::kDone;
    if (Announced(turn_) < total()) return Look::kIdle;
    const auto now = Clock::now();
    idle_since = std::min(idle_since, now);
    const bool alone = group_->awake() <= 1;  // this rank may be about to sleep
    return (alone || now - idle_since > kPatience) && WorkOnFar() ? Look::kProgress : Look::kIdle;
  };
  const auto missing = [&](int r) {
    // Whoever has not come; and when all have, whoever has claimed a chunk.
    return !done() &&
           (Announced(turn_) == total() || members_[r].announced.load() < Position(turn_, total()));
  };
  group_->Wait(StepName() + "all-reduce", look, missing, deadline());

  model_->ParametersChanged(0, model_->layout().total);
  Report totals;
  for (int r = 0; r < local_size(); ++r) totals += members_[r].reports[slot];
  StepResult step = Finished(totals, batch, penalty);
  const auto exposed = Clock::now() - start - (updating_ - updating_before) + summing_before;
  step.collective_seconds = std::chrono::duration<double>(exposed).count();
  step.collective_bytes = static_cast<int64_t>(total() * sizeof(float));
  return step;
}

// Copies what other cores will read.
void Mirrored::PutOut(size_t end) {
  const uint64_t core = ThisCore();
  const auto me = static_cast<size_t>(local_rank());
  for (; next_out_ < chunks_ && ChunkEnd(next_out_) <= end; ++next_out_) {
    const uint64_t last = CoreOf(claims_[next_out_].load());
    if (last == core || last == 0) continue;
    const size_t begin = next_out_ * kChunk;
    collectives::StreamCopy(copies_[me] + begin, gradients_[me] + begin, ChunkEnd(next_out_) - begin);
    copied_[me * chunks_ + next_out_].store(turn_ + 1, std::memory_order_relaxed);
  }
}

void Mirrored::Announce(size_t end) {
  PutOut(end);
  members_[local_rank()].announced.store(Position(turn_, end));
  // Sleepers are woken when all is done. Before, only for work that there are cores for.
  const size_t ready = Announced(turn_) / kChunk;
  const int room = group_->room() - group_->awake();
  if (ready >= next_near_ + kWorthWaking && room > 0) group_->Wake(room);
}

bool Mirrored::WorkOnNear() {
  const size_t announced = Announced(turn_);
  const uint64_t core = ThisCore();
  for (; next_near_ < chunks_ && ChunkEnd(next_near_) <= announced; ++next_near_) {
    const uint64_t claim = claims_[next_near_].load();
    const uint64_t last = CoreOf(claim);
    if ((last == core || last == 0) && TryChunk(next_near_, claim)) return ++next_near_, true;
  }
  return false;
}

// When all have announced everything.
bool Mirrored::WorkOnFar() {
  while (next_far_ < chunks_) {
    const size_t chunk = next_far_++;
    if (TryChunk(chunk, claims_[chunk].load())) return true;
  }
  return false;
}

bool Mirrored::TryChunk(size_t chunk, uint64_t claim) {
  if (claim >> kCoreBits != turn_) return false;
  if (!claims_[chunk].compare_exchange_strong(claim, (turn_ + 1) << kCoreBits | ThisCore())) return false;
  const size_t begin = chunk * kChunk, end = ChunkEnd(chunk);
  const auto start = Clock::now();
  from_ = gradients_;
  for (size_t r = 0; r < from_.size(); ++r) {
    const bool copied = copied_[r * chunks_ + chunk].load(std::memory_order_relaxed) == turn_ + 1;
    if (copied && r != static_cast<size_t>(local_rank())) from_[r] = copies_[r];
  }
  SumGradients(from_, begin, end);
  const auto summed = Clock::now();
  Update(begin, end);
  summing_ += summed - start;
  updating_ += Clock::now() - summed;
  if (shared_->chunks_done.fetch_add(1) + 1 == (turn_ + 1) * chunks_) group_->Wake();
  return true;
}

size_t Mirrored::ChunkEnd(size_t chunk) const { return std::min((chunk + 1) * kChunk, total()); }

}  // namespace lockstep::trainer::strategy
