#include "trainer/strategy/multi_worker_mirrored.h"

#include <algorithm>
#include <array>

#include "trainer/error.h"

namespace lockstep::trainer::strategy {
namespace {

// A round over the network costs some 50 us whatever its size: smaller variables go together, and larger ones
// are cut so that one piece is on the wire while the next is summed.
constexpr size_t kSmallestBucket = 64 * 1024;  // floats
constexpr size_t kLargestBucket = 1024 * 1024;

std::vector<collectives::Range> CutIntoBuckets(const ParameterLayout& layout) {
  std::vector<collectives::Range> buckets;
  const auto total = static_cast<size_t>(layout.total);
  size_t begin = 0;
  for (size_t i = 0; i < layout.variables.size(); ++i) {
    const bool last = i + 1 == layout.variables.size();
    const size_t end = last ? total : static_cast<size_t>(layout.variables[i + 1].offset);
    if (end - begin < kSmallestBucket && !last) continue;
    const size_t pieces = (end - begin + kLargestBucket - 1) / kLargestBucket;
    for (size_t piece = 0; piece < pieces; ++piece) {
      const auto part = collectives::PartOf(end - begin, static_cast<int>(piece), static_cast<int>(pieces));
      buckets.push_back({begin + part.begin, begin + part.end});
    }
    begin = end;
  }
  return buckets;
}

}  // namespace

void MultiWorkerMirrored::Prepare() {
  buckets_ = CutIntoBuckets(model_->layout());
  thread_ = std::thread([this] { Communicate(); });
}

MultiWorkerMirrored::~MultiWorkerMirrored() {
  if (!thread_.joinable()) return;
  if (!ended_.load()) Abort();
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

StepResult MultiWorkerMirrored::Step(const Batch& batch) {
  updated_ = 0;
  updating_ = {};
  const double penalty = Penalty();
  reduced_.store(0);
  ended_.store(false);
  {
    const std::lock_guard lock(mutex_);
    begin_ = true;
  }
  changed_.notify_one();

  const LossResult result =
      model_->TrainStep(batch.inputs, batch.labels, batch.local_samples,
                        1.0f / static_cast<float>(batch.global_samples), [&](int64_t, int64_t end) {
                          // The last range is announced below, together with the loss.
                          if (static_cast<size_t>(end) == total()) return;
                          Announce(static_cast<size_t>(end));
                          while (UpdateSome()) {
                          }
                        });
  const auto start = Clock::now();
  const auto updating_before = updating_;
  const auto slot = static_cast<size_t>(turn_ % 2);
  members_[local_rank()].reports[slot] = ReportOf(result, batch);
  Announce(total());

  const std::string operation = StepName() + "all-reduce";
  // The thread has deadlines of its own on everything it waits for; this one is behind all of them.
  group_->Wait(
      operation,
      [&] {
        const bool ended = ended_.load();  // before looking for its last work
        if (UpdateSome()) return Look::kProgress;
        return ended ? Look::kDone : Look::kIdle;
      },
      [](int) { return false; }, deadline() + options_.collective_timeout * 2);
  ThrowIfThreadFailed();

  const auto missing = [&](int r) { return members_[r].updated.load() <= turn_; };
  members_[local_rank()].updated.store(turn_ + 1);
  const auto look = [&] {
    for (int r = 0; r < local_size(); ++r) {
      if (missing(r)) return Look::kIdle;
    }
    return Look::kDone;
  };
  if (look() == Look::kDone) group_->Wake();
  group_->Wait(operation, look, missing, deadline());

  model_->ParametersChanged(0, model_->layout().total);
  StepResult step = Finished(shared_->totals[slot], batch, penalty);
  const auto exposed = Clock::now() - start - (updating_ - updating_before);
  step.collective_seconds = std::chrono::duration<double>(exposed).count();
  step.collective_bytes = static_cast<int64_t>(total() * sizeof(float));
  return step;
}

collectives::Range MultiWorkerMirrored::MyPart(size_t bucket) const {
  const collectives::Range all = buckets_[bucket];
  const auto part = collectives::PartOf(all.size(), local_rank(), local_size());
  return {all.begin + part.begin, all.begin + part.end};
}

// Wakes the machine's communication threads when a bucket has become complete.
void MultiWorkerMirrored::Announce(size_t end) {
  const size_t before = Announced(turn_);
  members_[local_rank()].announced.store(Position(turn_, end));
  const size_t after = Announced(turn_);
  const auto completed = [&](const collectives::Range& bucket) {
    return bucket.end > before && bucket.end <= after;
  };
  if (std::any_of(buckets_.begin(), buckets_.end(), completed)) group_->Wake();
}

bool MultiWorkerMirrored::UpdateSome() {
  if (updated_ == reduced_.load()) return false;
  const collectives::Range part = MyPart(updated_++);
  const auto start = Clock::now();
  Update(part.begin, part.end);
  updating_ += Clock::now() - start;
  return true;
}

void MultiWorkerMirrored::Communicate() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return begin_ || quit_; });
      if (quit_) return;
      begin_ = false;
    }
    try {
      CommunicateStep();
    } catch (const CollectiveLost& lost) {
      const std::lock_guard lock(mutex_);
      failure_ = std::make_exception_ptr(CollectiveLost(StepName() + lost.what()));
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
    ended_.store(true);
    group_->Wake();
  }
}

void MultiWorkerMirrored::CommunicateStep() {
  const auto await = [&](size_t end) {
    group_->Wait(
        "all-reduce", [&] { return Announced(turn_) >= end ? Look::kDone : Look::kIdle; },
        [&](int r) { return members_[r].announced.load() < Position(turn_, end); }, deadline(),
        collectives::LocalGroup::Waiter::kHelper);
  };
  float* const gradients = gradients_[static_cast<size_t>(local_rank())];
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    await(buckets_[bucket].end);
    const collectives::Range part = MyPart(bucket);
    SumGradients(gradients_, part.begin, part.end);
    machines_->AllReduce(std::span(gradients + part.begin, part.size()), deadline());
    reduced_.store(bucket + 1);
    group_->Wake();
  }
  if (!leads()) return;
  Report sum;
  for (int r = 0; r < local_size(); ++r) sum += members_[r].reports[turn_ % 2];
  std::array<double, 4> values{sum.loss_sum, sum.correct, sum.samples, sum.stop};
  machines_->AllReduce(std::span<double>(values), deadline());
  shared_->totals[turn_ % 2] = {values[0], values[1], values[2], values[3]};
}

void MultiWorkerMirrored::ThrowIfThreadFailed() {
  const std::lock_guard lock(mutex_);
  if (failure_ == nullptr) return;
  group_->Abort();
  std::rethrow_exception(failure_);
}

}  // namespace lockstep::trainer::strategy
