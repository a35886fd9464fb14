#include "trainer/batch_feed.h"

#include <numeric>
#include <vector>

#include "trainer/backend/device_backend.h"
#include "trainer/tensor/buffer.h"

namespace lockstep::trainer {
namespace {

class HostFeed final : public BatchFeed {
 public:
  HostFeed(const data::DatasetView& dataset, const Model& model, int64_t capacity)
      : dataset_(dataset),
        bfloat16_(model.input_type() == DataType::kBFloat16),
        values_(model.loss() == LossKind::kMeanSquaredError),
        inputs_(HostAllocator(),
                static_cast<size_t>(capacity * model.features()) * SizeOf(model.input_type())),
        labels_(HostAllocator(), static_cast<size_t>(capacity) * sizeof(int32_t)) {}

  Batch Load(std::span<const uint32_t> samples) override { return Gather(samples); }
  Batch Load(data::Range samples) override { return Gather(samples); }

 private:
  template <typename Samples>
  Batch Gather(const Samples& samples) {
    if (bfloat16_) {
      dataset_.GatherBfloat16(samples, inputs_.as<uint16_t>());
    } else {
      dataset_.Gather(samples, inputs_.as<float>());
    }
    if (values_) {
      dataset_.GatherValues(samples, labels_.as<float>());
    } else {
      dataset_.GatherLabels(samples, labels_.as<int32_t>());
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
  DeviceFeed(const data::DatasetView& dataset, const Model& model, DeviceBackend& backend, int64_t capacity)
      : dataset_(backend.MakeDataset(
            {.rows = dataset.raw_samples(),
             .targets = dataset.raw_targets(),
             .samples = dataset.plan().samples(),
             .features = dataset.features(),
             .row_type = dataset.plan().sample_type == data::SampleType::kUint8 ? DataType::kUInt8
                                                                                : DataType::kFloat32,
             .target_type = dataset.plan().target_type == data::TargetType::kLabel ? DataType::kInt32
                                                                                   : DataType::kFloat32,
             .scale = dataset.plan().scale,
             .input_type = model.input_type(),
             .label_type =
                 model.loss() == LossKind::kMeanSquaredError ? DataType::kFloat32 : DataType::kInt32,
             .max_batch = capacity})),
        numbers_(static_cast<size_t>(capacity)) {}

  Batch Load(std::span<const uint32_t> samples) override {
    const DeviceDataset::Loaded loaded = dataset_->Load(samples);
    return {loaded.inputs, loaded.labels};
  }
  Batch Load(data::Range samples) override {
    const std::span<uint32_t> numbers = std::span(numbers_).first(static_cast<size_t>(samples.count));
    std::iota(numbers.begin(), numbers.end(), static_cast<uint32_t>(samples.first));
    return Load(numbers);
  }

 private:
  std::unique_ptr<DeviceDataset> dataset_;
  std::vector<uint32_t> numbers_;
};

}  // namespace

std::unique_ptr<BatchFeed> MakeBatchFeed(const data::DatasetView& dataset, const Model& model,
                                         Backend& backend, int64_t capacity) {
  if (auto* device = dynamic_cast<DeviceBackend*>(&backend)) {
    return std::make_unique<DeviceFeed>(dataset, model, *device, capacity);
  }
  return std::make_unique<HostFeed>(dataset, model, capacity);
}

}  // namespace lockstep::trainer
