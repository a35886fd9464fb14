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
  journal_.Create(*group_, CutEvenly(total(), kChunk), optimizer_->slots(), deadline());
  chunks_ = journal_.pieces().size();
  sum_ = ZeroedHostBuffer(kChunk * sizeof(float));
  const auto ranks = static_cast<size_t>(local_size());
  claims_segment_ =
      group_->CreateSegment("claims", (2 + ranks) * chunks_ * sizeof(std::atomic<uint64_t>), deadline());
  claims_ = claims_segment_.View<std::atomic<uint64_t>>(0, chunks_);
  summed_by_ = claims_segment_.View<std::atomic<uint64_t>>(claims_.size_bytes(), chunks_);
  copied_ = claims_segment_.View<std::atomic<uint64_t>>(2 * claims_.size_bytes(), ranks * chunks_);
  copies_segment_ =
      group_->CreateSegment("copies", ranks * chunks_ * kChunk * sizeof(float), deadline(), false);
  norms_segment_ = group_->CreateSegment("norms", chunks_ * sizeof(double), deadline());
  norms_ = norms_segment_.View<double>(0, chunks_);
  for (size_t r = 0; r < ranks; ++r) {
    copies_.push_back(
        copies_segment_.View<float>(r * chunks_ * kChunk * sizeof(float), chunks_ * kChunk).data());
  }
}

StepResult Mirrored::Step(const Batch& batch) {
  next_out_ = next_near_ = next_far_ = 0;
  summing_ = updating_ = {};
  const LossResult result =
      model_->TrainStep(ModelBatchOf(batch), [&](int64_t, int64_t end) { PutOut(static_cast<size_t>(end)); });
  const auto start = Clock::now();
  members_[local_rank()].reports[turn_ % 2] = ReportOf(result, batch);
  Announce();

  const uint64_t all_done = (turn_ + 1) * chunks_;
  const auto done = [&] { return shared_->chunks_done.load() == all_done; };
  auto idle_since = Clock::time_point::max();
  const auto look = [&] {
    if (done()) return Look::kDone;
    if (Announced(turn_) < total()) return Look::kIdle;
    if (WorkOnNear()) {
      idle_since = Clock::time_point::max();
      return Look::kProgress;
    }
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
  const std::string operation = StepName() + "all-reduce";
  const trace::Scope scope(options_.trace, trace::Track::kCompute, "wait");
  group_->Wait(operation, look, missing, deadline());
  if (optimizer_->clips_by_norm()) {
    group_->ThrowIfFailed(operation);  // see UpdatePiece
    UpdateClipped();
    AwaitUpdates(operation);
  }

  model_->ParametersChanged(0, model_->layout().total);
  StepResult step = Finished(Reported());
  const auto exposed = Clock::now() - start - updating_;
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

void Mirrored::Announce() {
  members_[local_rank()].announced.store(Position(turn_, total()));
  // Sleepers are woken when all is done. Before, only for work that there are cores for.
  const int room = group_->room() - group_->awake();
  if (chunks_ >= kWorthWaking && room > 0 && Announced(turn_) == total()) group_->Wake(room);
}

// This and the next, when all have announced.
bool Mirrored::WorkOnNear() {
  const uint64_t core = ThisCore();
  for (; next_near_ < chunks_; ++next_near_) {
    const uint64_t claim = claims_[next_near_].load();
    const uint64_t last = CoreOf(claim);
    if ((last == core || last == 0) && TryChunk(next_near_, claim)) return ++next_near_, true;
  }
  return false;
}

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
  auto summed = start;
  if (optimizer_->clips_by_norm()) {
    SumGradients(from_, begin, end);
    summed = Clock::now();
    norms_[chunk] = SquaredNorm(begin, end);
    summed_by_[chunk].store(static_cast<uint64_t>(local_rank()));
    mine_.push_back(chunk);
  } else {
    SumInto(from_, begin, end, sum_.as<float>());
    summed = Clock::now();
    UpdatePiece(chunk, sum_.as<float>());
  }
  const auto updated = Clock::now();
  summing_ += summed - start;
  updating_ += updated - summed;
  if (options_.trace != nullptr) TraceChunk(chunk, start, summed, updated);
  if (shared_->chunks_done.fetch_add(1) + 1 == (turn_ + 1) * chunks_) group_->Wake();
  return true;
}

void Mirrored::TraceChunk(size_t chunk, Clock::time_point start, Clock::time_point summed,
                          Clock::time_point updated) const {
  const auto bucket = static_cast<int64_t>(chunk);
  const auto bytes = static_cast<int64_t>((ChunkEnd(chunk) - chunk * kChunk) * sizeof(float));
  options_.trace->Add({.name = "all-reduce",
                       .track = trace::Track::kCommunication,
                       .begin = start,
                       .end = summed,
                       .bucket = bucket,
                       .bytes = bytes});
  options_.trace->Add({.name = optimizer_->clips_by_norm() ? "norm" : "update",
                       .track = trace::Track::kCompute,
                       .begin = summed,
                       .end = updated,
                       .bucket = bucket});
}

// When all chunks are summed. The norm is summed in the same order everywhere.
void Mirrored::UpdateClipped() {
  const trace::Scope scope(options_.trace, trace::Track::kCompute, "update");
  const auto start = Clock::now();
  squared_norm_ = SquaredNormOfAll();
  for (const size_t chunk : mine_) UpdatePiece(chunk, gradients_[local_rank()] + chunk * kChunk);
  mine_.clear();
  updating_ += Clock::now() - start;
}

bool Mirrored::CanBeCompleted() const {
  if (optimizer_->clips_by_norm()) return shared_->chunks_done.load() >= (turn_ + 1) * chunks_;
  return Announced(turn_) == total();
}

const float* Mirrored::GradientOf(size_t piece, float* to) {
  const auto [begin, end] = journal_.pieces()[piece];
  if (optimizer_->clips_by_norm()) return gradients_[summed_by_[piece].load()] + begin;
  SumInto(gradients_, begin, end, to);
  return to;
}

double Mirrored::SquaredNormOfAll() const {
  double norm = 0;
  for (const double chunk : norms_) norm += chunk;
  return norm;
}

size_t Mirrored::ChunkEnd(size_t chunk) const { return std::min((chunk + 1) * kChunk, total()); }

}  // namespace lockstep::trainer::strategy
