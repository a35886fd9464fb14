#include "trainer/strategy/multi_worker_mirrored.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "common/log.h"
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
  if (sharded() && options_.world.rank == 0) {
    const auto whole = static_cast<double>(total() * sizeof(float)) * optimizer_->slots() / 1e6;
    char text[128];
    std::snprintf(text, sizeof text, "shard: each of %d has %.1f MB of the %.1f MB of optimizer state%s",
                  options_.world.group_size, whole / options_.world.group_size, whole,
                  copies() ? ", and a copy of its neighbour's" : "");
    log::Info(text);
  }
  const size_t parts = buckets_.size() * static_cast<size_t>(local_size());
  norms_segment_ = group_->CreateSegment("norms", (parts + 1) * sizeof(double), deadline());
  norms_ = norms_segment_.View<double>(0, parts);
  norm_of_all_ = norms_segment_.View<double>(parts * sizeof(double), 1).data();
  if (!updates_early()) CutIntoPieces();
  thread_ = std::thread([this] { Communicate(); });
}

void MultiWorkerMirrored::CutIntoPieces() {
  std::vector<collectives::Range> pieces;
  for (const collectives::Range& bucket : buckets_) {
    for (int r = 0; r < local_size(); ++r) {
      const auto part = collectives::PartOf(bucket.size(), r, local_size());
      for (const auto& share : SharesOf({bucket.begin + part.begin, bucket.begin + part.end})) {
        for (const auto& piece : CutEvenly(share.size(), local_size() > 1 ? kPiece : kLargestBucket)) {
          pieces.push_back({share.begin + piece.begin, share.begin + piece.end});
          owners_.push_back(r);
        }
      }
    }
  }
  journal_.Create(*group_, std::move(pieces), optimizer_->slots(), deadline());
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
  updated_.store(0);
  updating_ = {};
  reduced_.store(0);
  ended_.store(false);
  {
    const std::lock_guard lock(mutex_);
    begin_ = true;
  }
  changed_.notify_one();

  const LossResult result = model_->TrainStep(ModelBatchOf(batch), [&](int64_t, int64_t end) {
    // The last range is announced below, together with the loss.
    if (static_cast<size_t>(end) == total()) return;
    Announce(static_cast<size_t>(end));
    while (UpdateSome()) {
    }
  });
  const auto start = Clock::now();
  const auto updating_before = updating_;
  members_[local_rank()].reports[turn_ % 2] = ReportOf(result, batch);
  Announce(total());

  const std::string operation = StepName() + "all-reduce";
  {
    // The thread has deadlines of its own on everything it waits for; this one is behind all of them.
    const trace::Scope scope(options_.trace, trace::Track::kCompute, "wait");
    group_->Wait(
        operation,
        [&] {
          const bool ended = ended_.load();  // before looking for its last work
          if (UpdateSome()) return Look::kProgress;
          return ended ? Look::kDone : Look::kIdle;
        },
        [](int) { return false; }, deadline() + options_.collective_timeout * 2);
  }
  ThrowIfThreadFailed();

  if (!updates_early()) UpdateAll(operation);
  AwaitUpdates(operation);

  // All have come through a step since, and so have done with reading it.
  if (collected_) DiscardSlotsOfOthers();
  model_->ParametersChanged(0, model_->layout().total);
  StepResult step = Finished(Reported());
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

collectives::Range MultiWorkerMirrored::ShareOf(const collectives::Range& part, int machine) const {
  if (!sharded()) return part;
  const auto share = collectives::PartOf(part.size(), machine, options_.world.group_size);
  return {part.begin + share.begin, part.begin + share.end};
}

std::vector<collectives::Range> MultiWorkerMirrored::SharesOf(const collectives::Range& part) const {
  std::vector<collectives::Range> shares{ShareOf(part, options_.world.group_rank)};
  if (!copies()) return shares;
  const auto before = ShareOf(part, machine_before());
  shares.insert(before.begin < shares[0].begin ? shares.begin() : shares.end(), before);
  return shares;
}

// Unless it is done early, nothing is updated yet.
bool MultiWorkerMirrored::UpdateSome() {
  const size_t bucket = updated_.load(std::memory_order_relaxed);
  if (bucket == reduced_.load() || !(updates_early() || optimizer_->clips_by_norm())) return false;
  const collectives::Range share = ShareOf(MyPart(bucket), options_.world.group_rank);
  const trace::Scope scope(options_.trace, trace::Track::kCompute,
                           optimizer_->clips_by_norm() ? "norm" : "update",
                           {.bucket = static_cast<int64_t>(bucket)});
  const auto start = Clock::now();
  if (optimizer_->clips_by_norm()) {
    norms_[bucket * static_cast<size_t>(local_size()) + static_cast<size_t>(local_rank())] =
        SquaredNorm(share.begin, share.end);
  } else {
    Update(share.begin, share.end);
  }
  updating_ += Clock::now() - start;
  updated_.store(bucket + 1);
  if (sharded()) group_->Wake();
  return true;
}

// When this rank's parts of all buckets are summed, and those of the others of the machine.
void MultiWorkerMirrored::UpdateAll(const std::string& operation) {
  if (sharded() && optimizer_->clips_by_norm()) SumNorms(operation);
  AwaitSums(operation);
  if (copies()) AwaitMachines(operation);
  members_[local_rank()].updates.store(1);
  group_->ThrowIfFailed(operation);  // see MayUpdate, UpdatePiece
  const auto start = Clock::now();
  {
    const trace::Scope scope(options_.trace, trace::Track::kCompute, "update");
    squared_norm_ = SquaredNormOfAll();
    for (size_t piece = 0; piece < owners_.size(); ++piece) {
      if (owners_[piece] == local_rank()) UpdatePiece(piece, GradientOf(piece, nullptr));
    }
  }
  members_[local_rank()].updates.store(0);
  updating_ += Clock::now() - start;
  for (size_t bucket = 0; sharded() && bucket < buckets_.size(); ++bucket) GatherParameters(bucket);
}

// From then on the machine has the step (its shares of it), whatever the others do.
void MultiWorkerMirrored::AwaitSums(const std::string& operation) {
  members_[local_rank()].summed.store(turn_ + 1);
  const auto missing = [&](int r) { return members_[r].summed.load() <= turn_; };
  const auto look = [&] { return CanBeCompleted() ? Look::kDone : Look::kIdle; };
  if (look() == Look::kDone) return group_->Wake();
  group_->Wait(operation, look, missing, deadline());
}

// From then on no machine needs the state before the step any more.
void MultiWorkerMirrored::AwaitMachines(const std::string& operation) {
  if (leads()) machines_->Barrier(deadline());
  group_->Barrier(operation, deadline());
  shared_->decided.store(turn_ + 1);
}

bool MultiWorkerMirrored::CanBeCompleted() const {
  for (int r = 0; r < local_size(); ++r) {
    if (members_[r].summed.load() <= turn_) return false;
  }
  return true;
}

const float* MultiWorkerMirrored::GradientOf(size_t piece, float* /*to*/) {
  return gradients_[static_cast<size_t>(owners_[piece])] + journal_.pieces()[piece].begin;
}

double MultiWorkerMirrored::SquaredNormOfAll() const { return sharded() ? *norm_of_all_ : SquaredNormHere(); }

// In the same order everywhere.
double MultiWorkerMirrored::SquaredNormHere() const {
  double norm = 0;
  for (const double part : norms_) norm += part;
  return norm;
}

// Sharded, when this rank's parts of all buckets are summed.
void MultiWorkerMirrored::SumNorms(const std::string& operation) {
  group_->Barrier(operation, deadline());
  if (leads()) {
    std::array<double, 1> sum{SquaredNormHere()};
    machines_->AllReduce(std::span<double>(sum), deadline());
    *norm_of_all_ = sum[0];
  }
  group_->Barrier(operation, deadline());
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
    const std::span<float> sum(gradients + part.begin, part.size());
    {
      const trace::Scope scope(
          options_.trace, trace::Track::kCommunication, sharded() ? "reduce-scatter" : "all-reduce",
          {.bucket = static_cast<int64_t>(bucket), .bytes = static_cast<int64_t>(sum.size_bytes())});
      SumGradients(gradients_, part.begin, part.end);
      sharded() ? machines_->ReduceScatter(sum, deadline()) : machines_->AllReduce(sum, deadline());
    }
    reduced_.store(bucket + 1);
    group_->Wake();
    // One behind, so that the main thread's work on this one and the next one's way go on side by side.
    if (bucket > 0) FollowUp(bucket - 1);
  }
  FollowUp(buckets_.size() - 1);
  if (!leads()) return;
  Report sum;
  for (int r = 0; r < local_size(); ++r) sum += members_[r].reports[turn_ % 2];
  std::array<double, 4> values{sum.loss_sum, sum.correct, sum.samples, sum.stop};
  machines_->AllReduce(std::span<double>(values), deadline());
  shared_->totals[turn_ % 2] = {values[0], values[1], values[2], values[3]};
}

// What this thread does about a bucket that is summed. (Where the gradient is clipped by its norm, the main
// thread adds the penalties to it.)
void MultiWorkerMirrored::FollowUp(size_t bucket) {
  if (!updates_early() && !copies()) return;
  if (updates_early() || optimizer_->clips_by_norm()) {
    group_->Wait(
        "all-gather", [&] { return updated_.load() > bucket ? Look::kDone : Look::kIdle; },
        [](int) { return false; }, deadline(), collectives::LocalGroup::Waiter::kHelper);
  }
  if (updates_early()) return GatherParameters(bucket);
  const collectives::Range part = MyPart(bucket);
  float* const gradients = gradients_[static_cast<size_t>(local_rank())];
  machines_->CopyPartsOn({gradients + part.begin, part.size()}, deadline());
  if (options_.shard == Shard::kGradients) DiscardGradients(bucket, false);
}

void MultiWorkerMirrored::GatherParameters(size_t bucket) {
  const collectives::Range part = MyPart(bucket);
  if (options_.shard == Shard::kGradients) DiscardGradients(bucket, true);
  const trace::Scope scope(options_.trace, trace::Track::kCommunication, "all-gather",
                           {.bucket = static_cast<int64_t>(bucket)});
  machines_->AllGatherParts({parameters_ + part.begin, part.size()}, deadline());
}

// Of this rank's part, on all ranks of the machine: all of them, or what it does not update with.
void MultiWorkerMirrored::DiscardGradients(size_t bucket, bool all) {
  const collectives::Range part = MyPart(bucket);
  for (int r = 0; r < local_size(); ++r) {
    const float* const gradients = gradients_[static_cast<size_t>(r)];
    if (all || r != local_rank()) {
      Discard({gradients + part.begin, part.size()});
    } else {
      DiscardBeside(part, gradients);
    }
  }
}

// Of this machine's part of a flat buffer what it has no share of.
void MultiWorkerMirrored::DiscardBeside(const collectives::Range& part, const float* flat) {
  size_t begin = part.begin;
  for (const collectives::Range& share : SharesOf(part)) {
    Discard({flat + begin, share.begin - begin});
    begin = share.end;
  }
  Discard({flat + begin, part.end - begin});
}

void MultiWorkerMirrored::CollectSlots() {
  if (!sharded()) return;
  const int machine = options_.world.group_rank;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    const auto each = [&](int owner, const auto& pass) {
      const collectives::Range share = ShareOf(MyPart(bucket), owner);
      for (int i = 0; i < optimizer_->slots(); ++i) pass(std::span(slots_[i] + share.begin, share.size()));
    };
    if (machine != 0) {
      each(machine, [&](std::span<float> mine) { machines_->Send(std::as_bytes(mine), 0, deadline()); });
    }
    for (int other = 1; machine == 0 && other < options_.world.group_size; ++other) {
      each(other,
           [&](std::span<float> its) { machines_->Recv(std::as_writable_bytes(its), other, deadline()); });
    }
  }
  collected_ = machine == 0;
  group_->Barrier("collecting the optimizer's state", deadline());
}

// A machine has only its share of the average, and gets the others' for as long as that is read.
void MultiWorkerMirrored::UseAverage(bool average) {
  if (average && sharded()) {
    float* const slot = slots_[AverageSlotOf(*optimizer_)];
    for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      const collectives::Range part = MyPart(bucket);
      machines_->AllGatherParts({slot + part.begin, part.size()}, deadline());
    }
    collected_ = true;
    group_->Barrier("collecting the parameters' average", deadline());
  }
  Replicated::UseAverage(average);
}

void MultiWorkerMirrored::Restore(int64_t step, const Fill& fill) {
  Replicated::Restore(step, fill);
  group_->Barrier("restoring", deadline());
  DiscardSlotsOfOthers();
}

void MultiWorkerMirrored::DiscardSlotsOfOthers() {
  collected_ = false;
  for (size_t bucket = 0; sharded() && bucket < buckets_.size(); ++bucket) {
    for (int i = 0; i < optimizer_->slots(); ++i) DiscardBeside(MyPart(bucket), slots_[i]);
  }
}

// Sharded, the machine's shares of all its ranks' parts: as many parts as there are machines.
void MultiWorkerMirrored::BringState(Model& model, Committed* to) {
  if (!sharded()) return Replicated::BringState(model, to);
  to->division = options_.world.group_size;
  for (const int machine : {options_.world.group_rank, machine_before()}) {
    StatePart& part = to->parts.emplace_back();
    part.number = machine;
    for (const collectives::Range& bucket : buckets_) {
      for (int r = 0; r < local_size(); ++r) {
        const auto of_rank = collectives::PartOf(bucket.size(), r, local_size());
        part.stretches.push_back(
            ShareOf({bucket.begin + of_rank.begin, bucket.begin + of_rank.end}, machine));
      }
    }
    const auto append = [&part](const float* flat, std::vector<float>* floats) {
      for (const auto& [begin, end] : part.stretches) floats->insert(floats->end(), flat + begin, flat + end);
    };
    append(parameters_, &to->state.parameters);
    for (size_t i = 0; i < to->state.slots.size(); ++i) append(slots_[i], &to->state.slots[i]);
  }
}

void MultiWorkerMirrored::ThrowIfThreadFailed() {
  const std::lock_guard lock(mutex_);
  if (failure_ == nullptr) return;
  group_->Abort();
  std::rethrow_exception(failure_);
}

}  // namespace lockstep::trainer::strategy
