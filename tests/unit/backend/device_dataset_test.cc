#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "tests/unit/backend/random_values.h"
#include "tests/unit/backend/test_backends.h"
#include "trainer/data/block.h"
#include "trainer/data/dataset.h"
#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

using data::DatasetView;
using data::OwnedBlock;

struct Case {
  DataType row_type;
  DataType target_type;
  DataType input_type;
  DataType label_type;
  int64_t features;
  bool resident;
};

std::string NameOf(const Case& c) {
  const auto name = [](DataType type) { return std::string(DataTypeName(type)); };
  return name(c.row_type) + "To" + name(c.input_type) + "_" + name(c.target_type) + "To" +
         name(c.label_type) + "_" + std::to_string(c.features) + (c.resident ? "_Resident" : "_Streamed");
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const bool resident : {true, false}) {
    for (const DataType rows : {DataType::kUInt8, DataType::kFloat32}) {
      for (const DataType inputs : {DataType::kFloat32, DataType::kBFloat16}) {
        for (const int64_t features : {784, 3}) {
          cases.push_back({rows, DataType::kInt32, inputs, DataType::kInt32, features, resident});
        }
      }
    }
    cases.push_back(
        {DataType::kUInt8, DataType::kInt32, DataType::kFloat32, DataType::kInt32, 3072, resident});
    cases.push_back(
        {DataType::kUInt8, DataType::kInt32, DataType::kFloat32, DataType::kFloat32, 12, resident});
    cases.push_back(
        {DataType::kFloat32, DataType::kFloat32, DataType::kFloat32, DataType::kFloat32, 1, resident});
  }
  return cases;
}

constexpr int64_t kSamples = 700;
constexpr int64_t kMaxBatch = 64;

// The device's memory is limited so that only what is to be resident is.
class DeviceDatasetTest : public testing::TestWithParam<std::tuple<TestBackend, Case>> {
 protected:
  void SetUp() override {
    std::string why;
    const Case& c = test_case();
    device_ = MakeTestDevice(std::get<0>(GetParam()), {}, &why);
    if (device_ == nullptr) GTEST_SKIP() << why;
    plan_.sample_type =
        c.row_type == DataType::kUInt8 ? data::SampleType::kUint8 : data::SampleType::kFloat32;
    plan_.target_type =
        c.target_type == DataType::kInt32 ? data::TargetType::kLabel : data::TargetType::kValue;
    plan_.scale = c.row_type == DataType::kUInt8 ? 1.0f / 255 : 0.7f;
    plan_.features = c.features;
    plan_.classes = c.target_type == DataType::kInt32 ? 10 : 0;
    plan_.training = kSamples;
    block_.emplace(plan_.block_bytes());
    data::WriteBlockHeader(plan_, block_->bytes());
    std::mt19937 random(7);
    const auto values = static_cast<size_t>(kSamples * c.features);
    for (size_t i = 0; i < values; ++i) {
      const auto byte = static_cast<uint8_t>(random());
      const float value = static_cast<float>(static_cast<int>(random() % 20001) - 10000) / 777;
      Put(plan_.sample_offset(), i, c.row_type, byte, value);
    }
    for (size_t i = 0; i < kSamples; ++i) {
      const auto label = static_cast<int32_t>(random() % 10);
      Put(plan_.target_offset(), i, c.target_type, label, static_cast<float>(label) / 3);
    }
  }

  const Case& test_case() const { return std::get<1>(GetParam()); }
  DatasetView view() const { return DatasetView::FromBlock(block_->bytes()); }
  DeviceBackend& device() { return *device_; }

  std::unique_ptr<DeviceDataset> Make() {
    const Case& c = test_case();
    const int64_t samples = c.resident ? kSamples : Multiplied();
    return device().MakeDataset({.rows = view().raw_samples(),
                                 .targets = view().raw_targets(),
                                 .samples = samples,
                                 .features = c.features,
                                 .row_type = c.row_type,
                                 .target_type = c.target_type,
                                 .scale = plan_.scale,
                                 .input_type = c.input_type,
                                 .label_type = c.label_type,
                                 .max_batch = kMaxBatch});
  }

  std::vector<uint8_t> Inputs(std::span<const uint32_t> samples) const {
    const Case& c = test_case();
    std::vector<uint8_t> bytes(samples.size() * static_cast<size_t>(c.features) * SizeOf(c.input_type));
    if (c.input_type == DataType::kBFloat16) {
      view().GatherBfloat16(samples, reinterpret_cast<uint16_t*>(bytes.data()));
    } else {
      view().Gather(samples, reinterpret_cast<float*>(bytes.data()));
    }
    return bytes;
  }
  std::vector<uint8_t> Labels(std::span<const uint32_t> samples) const {
    std::vector<uint8_t> bytes(samples.size() * 4);
    if (test_case().label_type == DataType::kInt32) {
      view().GatherLabels(samples, reinterpret_cast<int32_t*>(bytes.data()));
    } else {
      view().GatherValues(samples, reinterpret_cast<float*>(bytes.data()));
    }
    return bytes;
  }
  std::vector<uint8_t> Fetch(const void* from, size_t bytes) {
    std::vector<uint8_t> values(bytes);
    device().Download(values.data(), from, bytes);
    return values;
  }

 private:
  // So many samples that they cannot be resident. Those beyond the block are never asked for.
  int64_t Multiplied() const { return (int64_t{1} << 50) / test_case().features; }

  template <typename Small>
  void Put(size_t offset, size_t index, DataType type, Small small, float value) {
    std::byte* to = block_->bytes().data() + offset + index * SizeOf(type);
    if (type == DataType::kFloat32) {
      std::memcpy(to, &value, sizeof value);
    } else {
      std::memcpy(to, &small, sizeof small);
    }
  }

  std::unique_ptr<DeviceBackend> device_;
  data::DatasetPlan plan_;
  std::optional<OwnedBlock> block_;
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceDatasetTest);
INSTANTIATE_TEST_SUITE_P(Devices, DeviceDatasetTest,
                         testing::Combine(testing::ValuesIn(TestDevices()), testing::ValuesIn(Cases())),
                         TestName<Case>);

TEST_P(DeviceDatasetTest, LoadsWhatTheViewGathersBitwise) {
  const auto dataset = Make();
  ASSERT_EQ(dataset->resident(), test_case().resident);
  std::mt19937 random(3);
  for (const size_t n : {64, 1, 17, 64, 63}) {
    std::vector<uint32_t> samples(n);
    for (uint32_t& sample : samples) sample = static_cast<uint32_t>(random() % kSamples);
    const auto wanted_inputs = Inputs(samples), wanted_labels = Labels(samples);
    const auto loaded = dataset->Load(samples);
    std::fill(samples.begin(), samples.end(), 0);  // the caller may
    ASSERT_EQ(Fetch(loaded.inputs, wanted_inputs.size()), wanted_inputs);
    ASSERT_EQ(Fetch(loaded.labels, wanted_labels.size()), wanted_labels);
  }
}

// The host is many batches ahead; each batch is still there when the next one is loaded.
TEST_P(DeviceDatasetTest, BatchesStayUntilTheSecondLoadAfter) {
  const auto dataset = Make();
  constexpr uint32_t kBatches = 30;
  const size_t bytes = kMaxBatch * static_cast<size_t>(test_case().features) * SizeOf(test_case().input_type);
  const Buffer kept(device().allocator(), kBatches * bytes);
  std::vector<std::vector<uint32_t>> samples(kBatches, std::vector<uint32_t>(kMaxBatch));
  DeviceDataset::Loaded before;
  for (uint32_t i = 0; i <= kBatches; ++i) {
    DeviceDataset::Loaded loaded;
    if (i < kBatches) {
      std::iota(samples[i].begin(), samples[i].end(), i * 21);
      loaded = dataset->Load(samples[i]);
    }
    if (i > 0) device().CopyAsync(kept.as<uint8_t>() + (i - 1) * bytes, before.inputs, bytes);
    before = loaded;
  }
  for (uint32_t i = 0; i < kBatches; ++i) {
    ASSERT_EQ(Fetch(kept.as<uint8_t>() + i * bytes, bytes), Inputs(samples[i])) << i;
  }
}

TEST_P(DeviceDatasetTest, BatchesLargerThanSaidAreRefused) {
  const auto dataset = Make();
  const std::vector<uint32_t> samples(kMaxBatch + 1);
  EXPECT_THROW(dataset->Load(samples), BadData);
  EXPECT_NO_THROW(dataset->Load({}));
}

}  // namespace
}  // namespace lockstep::trainer
