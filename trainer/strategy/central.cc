#include "trainer/strategy/central.h"

#include <algorithm>

namespace lockstep::trainer::strategy {
std::vector<int> Central::ChildrenOf(int rank, int size, bool binomial) {
  std::vector<int> children;
  if (!binomial) {
    for (int r = 1; rank == 0 && r < size; ++r) children.push_back(r);
    return children;
  }
  const int limit = rank == 0 ? size : rank & -rank;
  for (int distance = 1; distance < limit && rank + distance < size; distance *= 2) {
    children.push_back(rank + distance);
  }
  return children;
}

void Central::Prepare() {
  journal_.Create(*group_, CutEvenly(total(), kPiece), optimizer_->slots(), deadline());
  children_ = ChildrenOf(local_rank(), local_size(), options_.ops == CrossDeviceOps::kHierarchicalCopy);
  from_ = {gradients_[static_cast<size_t>(local_rank())]};
  for (const int child : children_) from_.push_back(gradients_[static_cast<size_t>(child)]);
}

StepResult Central::Step(const Batch& batch) {
  own_ = summed_ = 0;
  bucket_ = 0;
  summing_ = updating_ = {};
  const LossResult result = model_->TrainStep(ModelBatchOf(batch), [&](int64_t, int64_t end) {
    // The last range is passed on below, together with the loss.
    if (static_cast<size_t>(end) == total()) return;
    own_ = static_cast<size_t>(end);
    Advance();
  });
  const auto start = Clock::now();
  const auto worked_before = summing_ + updating_;
  members_[local_rank()].reports[turn_ % 2] = ReportOf(result, batch);
  own_ = total();

  const auto done = [&] { return members_[0].updated.load() > turn_; };
  const auto look = [&] {
    if (Advance()) return Look::kProgress;
    return done() ? Look::kDone : Look::kIdle;
  };
  const auto missing = [&](int r) {
    const bool all_announced = Announced(turn_) == total();
    return !done() && (all_announced ? r == 0 : members_[r].announced.load() < Position(turn_, total()));
  };
  const trace::Scope scope(options_.trace, trace::Track::kCompute, "wait");
  group_->Wait(StepName() + "all-reduce", look, missing, deadline());

  model_->ParametersChanged(0, model_->layout().total);
  StepResult step = Finished(Reported());
  const auto exposed = Clock::now() - start - (summing_ + updating_ - worked_before);
  step.collective_seconds = std::chrono::duration<double>(exposed).count();
  step.collective_bytes = static_cast<int64_t>(total() * sizeof(float));
  return step;
}

// Sums what this rank and its children have, and hands it on: to the parent, or, at the root and when all is
// there, to the parameters.
bool Central::Advance() {
  size_t ready = own_;
  for (const int child : children_) {
    const uint64_t start = Position(turn_, 0);
    const uint64_t announced = members_[child].announced.load();
    ready = std::min<uint64_t>(ready, announced <= start ? 0 : announced - start);
  }
  if (ready == summed_ || (ready < total() && ready - summed_ < kPiece)) return false;
  const auto start = Clock::now();
  SumGradients(from_, summed_, ready);
  if (leads() && optimizer_->clips_by_norm() && ready == total()) {
    shared_->squared_norm = squared_norm_ = SquaredNorm(0, total());
  }
  const auto summed = Clock::now();
  summing_ += summed - start;
  if (options_.trace != nullptr) {
    options_.trace->Add({.name = "all-reduce",
                         .track = trace::Track::kCommunication,
                         .begin = start,
                         .end = summed,
                         .bucket = bucket_++,
                         .bytes = static_cast<int64_t>((ready - summed_) * sizeof(float))});
  }
  summed_ = ready;
  members_[local_rank()].announced.store(Position(turn_, ready));
  if (leads() && ready == total()) {
    UpdateAll();
    updating_ += Clock::now() - summed;
    members_[0].updated.store(turn_ + 1);
  }
  // Nobody is woken for a part: whoever waits for it computes, or waits for the rest too.
  if (ready == total()) group_->Wake();
  return true;
}

void Central::UpdateAll() {
  const trace::Scope scope(options_.trace, trace::Track::kCompute, "update");
  group_->ThrowIfFailed(StepName() + "all-reduce");  // see UpdatePiece
  for (size_t piece = 0; piece < journal_.pieces().size(); ++piece) {
    UpdatePiece(piece, gradients_[0] + journal_.pieces()[piece].begin);
  }
}

// The root has the whole sum.
bool Central::CanBeCompleted() const { return members_[0].announced.load() >= Position(turn_, total()); }

const float* Central::GradientOf(size_t piece, float* /*to*/) {
  return gradients_[0] + journal_.pieces()[piece].begin;
}

}  // namespace lockstep::trainer::strategy
