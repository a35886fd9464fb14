#include "trainer/augmented_feed.h"

#include "trainer/backend/device_backend.h"
#include "trainer/data/gather.h"

namespace lockstep::trainer {
namespace {

constexpr size_t kAhead = 2;  // batches that are ready before they are asked for
constexpr size_t kForEvaluation = 2;

}  // namespace

AugmentedFeed::AugmentedFeed(const Options& options)
    : options_(options),
      device_(dynamic_cast<DeviceBackend*>(&options.backend)),
      sampler_(options.sampler),
      scratch_(static_cast<size_t>(options.augmentation->features())),
      prefetcher_({.slots = kAhead + static_cast<size_t>(options.in_flight),
                   .kept = static_cast<size_t>(options.in_flight),
                   .epochs = options.epochs,
                   .prepare = [this](data::Position at, size_t slot) { Prepare(at, slot); },
                   .next = [this](data::Position at) { return sampler_.Next(at); }}) {
  Allocator& allocator = device_ != nullptr ? device_->pinned() : HostAllocator();
  for (size_t i = 0; i < kAhead + static_cast<size_t>(options.in_flight); ++i) {
    slots_.push_back(Allocate(allocator));
  }
  evaluation_ = Allocate(allocator);
  if (device_ == nullptr) return;
  for (Memory& memory : on_device_) memory = Allocate(device_->allocator());
}

AugmentedFeed::Memory AugmentedFeed::Allocate(Allocator& allocator) const {
  const Model& model = options_.model;
  return {.inputs = Buffer(allocator, model.reads_inputs() ? InputBytes(options_.capacity) : 0),
          .labels = Buffer(allocator,
                           model.has_loss() ? static_cast<size_t>(options_.capacity) * sizeof(int32_t) : 0)};
}

size_t AugmentedFeed::InputBytes(int64_t samples) const {
  return static_cast<size_t>(samples * options_.augmentation->features()) *
         SizeOf(options_.model.input_type());
}

template <typename Write>
void AugmentedFeed::PutRow(const Memory& memory, int64_t row, std::vector<float>& scratch,
                           const Write& write) const {
  const int64_t features = options_.augmentation->features();
  if (options_.model.input_type() == DataType::kFloat32)
    return write(memory.inputs.as<float>() + row * features);
  write(scratch.data());
  data::BestRowConverters().float_to_bfloat16(reinterpret_cast<const std::byte*>(scratch.data()),
                                              scratch.size(), 1,
                                              memory.inputs.as<uint16_t>() + row * features);
}

template <typename Samples>
void AugmentedFeed::PutLabels(const Memory& memory, const Samples& samples) const {
  if (!options_.model.has_loss()) return;
  if (options_.model.loss() == LossKind::kMeanSquaredError) {
    options_.dataset.GatherValues(samples, memory.labels.as<float>());
  } else {
    options_.dataset.GatherLabels(samples, memory.labels.as<int32_t>());
  }
}

void AugmentedFeed::Prepare(data::Position at, size_t slot) {
  const trace::Scope scope(options_.trace, trace::Track::kPreparation, "prepare batch");
  const Memory& memory = slots_[slot];
  const auto shard = sampler_.Shard(at, options_.share, options_.shares);
  for (size_t i = 0; options_.model.reads_inputs() && i < shard.size(); ++i) {
    PutRow(memory, static_cast<int64_t>(i), scratch_, [&](float* out) {
      options_.augmentation->Train(options_.dataset.RawSample(shard[i]).data(), at.epoch, shard[i], out);
    });
  }
  PutLabels(memory, shard);
}

BatchFeed::Batch AugmentedFeed::Load(data::Position at, std::span<const uint32_t> shard) {
  const Memory& ready = slots_[prefetcher_.Take(at)];
  if (device_ == nullptr) return {ready.inputs.data(), ready.labels.data()};
  return Send(ready, on_device_[loads_++ % kForEvaluation], static_cast<int64_t>(shard.size()));
}

BatchFeed::Batch AugmentedFeed::Load(data::Range samples) {
  std::vector<float> scratch(static_cast<size_t>(options_.augmentation->features()));
  for (int64_t i = 0; options_.model.reads_inputs() && i < samples.count; ++i) {
    PutRow(evaluation_, i, scratch, [&](float* out) {
      options_.augmentation->Evaluate(options_.dataset.RawSample(samples.first + i).data(), out);
    });
  }
  PutLabels(evaluation_, samples);
  if (device_ == nullptr) return {evaluation_.inputs.data(), evaluation_.labels.data()};
  const Batch batch = Send(evaluation_, on_device_[kForEvaluation], samples.count);
  device_->Synchronize();  // the next samples go to the same memory
  return batch;
}

BatchFeed::Batch AugmentedFeed::Send(const Memory& from, const Memory& to, int64_t samples) {
  // (A part of a model may have no use for one of them, and then there is no memory for it.)
  if (from.inputs.bytes() > 0) {
    device_->CopyAsync(to.inputs.data(), from.inputs.data(), InputBytes(samples));
  }
  if (from.labels.bytes() > 0) {
    device_->CopyAsync(to.labels.data(), from.labels.data(), static_cast<size_t>(samples) * sizeof(int32_t));
  }
  return {to.inputs.data(), to.labels.data()};
}

}  // namespace lockstep::trainer
