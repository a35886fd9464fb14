#include "trainer/batch_feed.h"

#include <numeric>
#include <span>
#include <vector>

#include "trainer/augmented_feed.h"
#include "trainer/backend/device_backend.h"
#include "trainer/tensor/buffer.h"

namespace lockstep::trainer {
namespace {

class HostFeed final : public BatchFeed {
 public:
  explicit HostFeed(const Options& options)
      : dataset_(options.dataset),
        bfloat16_(options.model.input_type() == DataType::kBFloat16),
        values_(options.model.loss() == LossKind::kMeanSquaredError),
        inputs_(HostAllocator(), !options.model.reads_inputs()
                                     ? 0
                                     : static_cast<size_t>(options.capacity * options.model.features()) *
                                           SizeOf(options.model.input_type())),
        labels_(HostAllocator(),
                options.model.has_loss() ? static_cast<size_t>(options.capacity) * sizeof(int32_t) : 0) {}

  Batch Load(data::Position, std::span<const uint32_t> shard) override { return Gather(shard); }
  Batch Load(data::Range samples) override { return Gather(samples); }

 private:
  template <typename Samples>
  Batch Gather(const Samples& samples) {
    if (inputs_.bytes() > 0) {
      bfloat16_ ? dataset_.GatherBfloat16(samples, inputs_.as<uint16_t>())
                : dataset_.Gather(samples, inputs_.as<float>());
    }
    if (labels_.bytes() > 0) {
      values_ ? dataset_.GatherValues(samples, labels_.as<float>())
              : dataset_.GatherLabels(samples, labels_.as<int32_t>());
    }
    return {inputs_.data(), labels_.data()};
  }

  const data::DatasetView& dataset_;
  bool bfloat16_;
  bool values_;
  Buffer inputs_;
  Buffer labels_;
};

class DeviceFeed final : public BatchFeed {
 public:
  DeviceFeed(const Options& options, DeviceBackend& backend)
      : dataset_(backend.MakeDataset(
            {.rows = options.dataset.raw_samples(),
             .targets = options.dataset.raw_targets(),
             .samples = options.dataset.plan().samples(),
             .features = options.model.reads_inputs() ? options.dataset.features() : 0,
             .row_type = options.dataset.plan().sample_type == data::SampleType::kUint8 ? DataType::kUInt8
                                                                                        : DataType::kFloat32,
             .target_type = options.dataset.plan().target_type == data::TargetType::kLabel
                                ? DataType::kInt32
                                : DataType::kFloat32,
             .scale = options.dataset.plan().scale,
             .input_type = options.model.input_type(),
             .label_type =
                 options.model.loss() == LossKind::kMeanSquaredError ? DataType::kFloat32 : DataType::kInt32,
             .max_batch = options.capacity})),
        numbers_(static_cast<size_t>(options.capacity)) {}

  Batch Load(data::Position, std::span<const uint32_t> shard) override { return Enqueue(shard); }
  Batch Load(data::Range samples) override {
    const std::span<uint32_t> numbers = std::span(numbers_).first(static_cast<size_t>(samples.count));
    std::iota(numbers.begin(), numbers.end(), static_cast<uint32_t>(samples.first));
    return Enqueue(numbers);
  }

 private:
  Batch Enqueue(std::span<const uint32_t> samples) {
    const DeviceDataset::Loaded loaded = dataset_->Load(samples);
    return {loaded.inputs, loaded.labels};
  }

  std::unique_ptr<DeviceDataset> dataset_;
  std::vector<uint32_t> numbers_;
};

// For a part of a model that reads neither inputs nor labels.
class NoFeed final : public BatchFeed {
 public:
  Batch Load(data::Position, std::span<const uint32_t>) override { return {}; }
  Batch Load(data::Range) override { return {}; }
};

}  // namespace

std::unique_ptr<BatchFeed> BatchFeed::Make(const Options& options) {
  if (!options.model.reads_inputs() && !options.model.has_loss()) return std::make_unique<NoFeed>();
  if (options.augmentation != nullptr) return std::make_unique<AugmentedFeed>(options);
  if (auto* device = dynamic_cast<DeviceBackend*>(&options.backend)) {
    return std::make_unique<DeviceFeed>(options, *device);
  }
  return std::make_unique<HostFeed>(options);
}

}  // namespace lockstep::trainer
