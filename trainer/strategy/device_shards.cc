#include <algorithm>
#include <cstdio>

#include "common/log.h"
#include "trainer/strategy/buckets.h"
#include "trainer/strategy/device_replicated.h"

// What of DeviceReplicated has to do with who has what of the parameters, gradients and slots.
namespace lockstep::trainer::strategy {
namespace {

using collectives::PartOnDevice;
using collectives::Range;

// PyTorch's DDP found 25 MB to be about right (arXiv 2006.15704, section 5.4).
constexpr size_t kBucket = 25'000'000 / sizeof(float);
// A sum of this many floats takes longer than to start another.
constexpr size_t kWorthTwoBuckets = 1024 * 1024;
// Where gradients are divided, buckets of an eighth of the whole or less, so that the two that are there at
// once come to little; none so small that hardly anything but its latency is left of a sum.
constexpr size_t kParts = 8;
constexpr size_t kSmallestInTurns = 16 * 1024;

// In the slots and in the sums each share begins on a multiple of so many floats.
size_t Aligned(size_t floats) { return (floats + 63) / 64 * 64; }

}  // namespace

// The same on every rank. Whether gradients are in turns: only where that is less than the whole of them. A
// model that sums over the replicas in the middle of a pass waits for the device there, which must not wait
// for the others then.
void DeviceReplicated::Divide() {
  const World& world = options_.world;
  stride_ = slot_stride_ = gradient_floats_ = Aligned(total());
  whole_.range = whole_.share = {0, total()};
  if (alone()) return;
  const auto cut = [&](std::vector<Range> ranges) {
    buckets_.clear();
    slot_stride_ = 0;
    for (const Range range : ranges) {
      Bucket& bucket = buckets_.emplace_back();
      bucket.range = bucket.share = range;
      bucket.slots = range.begin;
      if (!sharded()) continue;
      const Range part = PartOnDevice(range.size(), world.rank, world.size);
      bucket.share = {range.begin + part.begin, range.begin + part.end};
      bucket.slots = slot_stride_;
      // (The last rank has the most.)
      slot_stride_ += Aligned(PartOnDevice(range.size(), world.size - 1, world.size).size());
    }
    if (!sharded()) slot_stride_ = stride_;
  };
  if (options_.shard == Shard::kGradients && !model_->adds_up_pieces() && !model_->sums_over_replicas()) {
    const size_t target = std::min(kBucket, std::max(kSmallestInTurns, total() / kParts));
    cut(CutIntoBuckets(model_->layer_ends(), target, kWorthTwoBuckets));
    size_t largest[2] = {};
    for (size_t i = 0; i < buckets_.size(); ++i) {
      largest[i % 2] = std::max(largest[i % 2], Aligned(buckets_[i].range.size()));
    }
    in_turns_ = largest[0] + largest[1] + slot_stride_ < gradient_floats_;
    if (in_turns_) {
      first_turn_ = largest[0];
      gradient_floats_ = largest[0] + largest[1];
      return;
    }
  }
  cut(CutIntoBuckets(model_->layout(), kBucket, kWorthTwoBuckets));
}

void DeviceReplicated::NoteContents(Bucket* bucket) const {
  const auto begin = static_cast<int64_t>(bucket->share.begin), end = static_cast<int64_t>(bucket->share.end);
  for (UpdateRange range : model_->layout().update_ranges()) {
    range.begin = std::max(range.begin, begin) - begin;
    range.end = std::min(range.end, end) - begin;
    if (range.begin < range.end) bucket->ranges.push_back(range);
  }
  for (RoundedCopy copy : model_->rounded_copies()) {
    if (copy.begin < begin || copy.end > end) continue;
    bucket->rounded.push_back({copy.begin - begin, copy.end - begin, copy.to});
  }
}

// When there is memory.
void DeviceReplicated::PlaceBuckets() {
  NoteContents(&whole_);
  for (Bucket& bucket : buckets_) NoteContents(&bucket);
  whole_.gradients = whole_.sums = gradients_;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    if (in_turns_) {
      bucket.gradients = gradients_ + (i % 2 == 0 ? 0 : first_turn_);
      bucket.sums = gradients_ + gradient_floats_ + bucket.slots;
    } else {
      bucket.gradients = gradients_ + bucket.range.begin;
      bucket.sums = gradients_ + bucket.share.begin;
    }
  }
}

void DeviceReplicated::ReportShares() const {
  if (!sharded()) return;
  const auto megabytes = [](size_t floats) { return static_cast<double>(floats * sizeof(float)) / 1e6; };
  const auto slots = static_cast<size_t>(optimizer_->slots());
  char text[160];
  std::snprintf(text, sizeof text, "shard: each of %d has %.1f MB of the %.1f MB of optimizer state",
                options_.world.size, megabytes(slots * slot_stride_), megabytes(slots * total()));
  std::string line = text;
  if (in_turns_) {
    std::snprintf(text, sizeof text, ", and %.1f MB of the %.1f MB of gradients",
                  megabytes(gradient_floats_ + slot_stride_), megabytes(total()));
    line += text;
  } else if (options_.shard == Shard::kGradients) {
    line += ", and the gradients whole, since ";
    line += model_->sums_over_replicas() ? "the model sums over the replicas within a pass"
            : model_->adds_up_pieces()   ? "a step's are added up in pieces"
                                         : "two buckets at once come to as much";
  }
  log::Info(line);
}

// The padding between variables has to be zero, and a rank without samples writes no gradients.
void DeviceReplicated::StartTurns() { device_.Zero(gradients_, gradient_floats_ * sizeof(float)); }

// Behind the pass over a bucket, whose sums may be scattered from now on; in front of that over the next
// one's, whose place has to be free of the one before.
void DeviceReplicated::TakeTurn(size_t bucket, bool measured) {
  EnqueueSum(buckets_[bucket]);
  if (bucket == 0 || bucket + 1 == buckets_.size()) return;
  const Bucket& before = buckets_[bucket - 1];
  const Bucket& next = buckets_[bucket + 1];
  WaitFor(*before.reduced, before.wait, measured);
  device_.Zero(next.gradients, next.range.size() * sizeof(float));
}

// Of the parameters that this rank has updated, to all others.
void DeviceReplicated::GatherParameters(bool measured) {
  const Stream communication = device_.communication_stream();
  for (const Bucket& bucket : buckets_) {
    bucket.updated->MakeWait(communication);
    const DeviceTrace::Scope scope(trace_.get(), trace::Track::kCommunication, communication, "all-gather",
                                   {.bucket = NumberOf(bucket)});
    communicator_->AllGatherParts(state_.as<float>() + bucket.range.begin, bucket.range.size(),
                                  communication);
  }
  gathered_->Record(communication);
  WaitFor(*gathered_, gather_wait_, measured);
}

// Added up by bucket and then by rank, the same everywhere.
void DeviceReplicated::UpdateClippedShares() {
  device_.Zero(norm_, sizeof *norm_);
  for (const Bucket& bucket : buckets_) {
    const auto size = static_cast<int64_t>(bucket.share.size());
    optimizer_->AddPenalties(state_.as<float>() + bucket.share.begin, bucket.sums, 0, size, bucket.ranges);
    device_.AddSumOfSquaresAsync(bucket.sums, size, squared_norm_);
  }
  communicator_->AllReduce(norm_, device_.compute_stream());
  for (const Bucket& bucket : buckets_) Update(bucket);
}

// What all ranks have of a slot, at `to`, which lies in registered memory and has room for the bucket.
void DeviceReplicated::GatherSlot(int index, const Bucket& bucket, float* to) {
  const Stream compute = device_.compute_stream();
  device_.CopyAsync(to + (bucket.share.begin - bucket.range.begin), SlotOf(index) + bucket.slots,
                    bucket.share.size() * sizeof(float));
  communicator_->AllGatherParts(to, bucket.range.size(), compute);
  idle_->Record(compute);
  watch_->Await(*idle_, "collecting the optimizer's state", step_);
}

// Through the memory of the gradients, which nobody needs between steps.
void DeviceReplicated::CollectSlots() {
  if (!sharded()) return;
  for (int i = 0; i < optimizer_->slots(); ++i) {
    std::vector<float>& whole = host_[1 + static_cast<size_t>(i)];
    for (const Bucket& bucket : buckets_) {
      GatherSlot(i, bucket, bucket.gradients);
      if (options_.world.rank != 0) continue;
      whole.resize(total());
      device_.Download(whole.data() + bucket.range.begin, bucket.gradients,
                       bucket.range.size() * sizeof(float));
    }
  }
}

std::span<const float> DeviceReplicated::slot(int index) const {
  if (!sharded()) return Downloaded(1 + index);
  std::vector<float>& whole = host_[1 + static_cast<size_t>(index)];
  whole.resize(total());
  return whole;
}

// Rank 0 has them whole, in its host's memory.
void DeviceReplicated::SpreadSlots() {
  const Stream compute = device_.compute_stream();
  for (int i = 0; i < optimizer_->slots(); ++i) {
    for (const Bucket& bucket : buckets_) {
      const size_t bytes = bucket.range.size() * sizeof(float);
      if (options_.world.rank == 0) {
        const float* const from = host_[1 + static_cast<size_t>(i)].data() + bucket.range.begin;
        device_.Upload(bucket.gradients, from, bytes);
      }
      communicator_->Broadcast(bucket.gradients, bytes, 0, compute);
      device_.CopyAsync(SlotOf(i) + bucket.slots,
                        bucket.gradients + (bucket.share.begin - bucket.range.begin),
                        bucket.share.size() * sizeof(float));
      idle_->Record(compute);
      watch_->Await(*idle_, "spreading the optimizer's state", step_);
    }
  }
}

// Beside the parameters a device need not have room for the whole average: they wait in the host's memory.
void DeviceReplicated::ReadAverage(bool average) {
  const std::span<const float> parameters = Downloaded(0);
  if (!average) return device_.Upload(state_.data(), parameters.data(), total() * sizeof(float));
  for (const Bucket& bucket : buckets_) {
    GatherSlot(AverageSlotOf(*optimizer_), bucket, state_.as<float>() + bucket.range.begin);
  }
}

}  // namespace lockstep::trainer::strategy
