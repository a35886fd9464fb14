#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/unit/backend/random_values.h"
#include "tests/unit/backend/test_backends.h"
#include "trainer/model/model.h"
#include "trainer/optimizer/optimizer.h"

// Whole steps, which are what a device records and what it has to be right in.
namespace lockstep::trainer {
namespace {

struct Case {
  Precision precision;
};
std::string NameOf(const Case& c) { return PrecisionName(c.precision); }

constexpr int64_t kBatch = 96, kFeatures = 50, kOutputs = 10;

// A model in training on a backend, its batch in that backend's memory.
class Training {
 public:
  Training(Backend& backend, Precision precision)
      : backend_(backend),
        model_({.layers = {{.units = 64, .activation = Activation::kRelu},
                           {.units = 33, .activation = Activation::kRelu, .kernel_l2 = 1e-3},
                           {.units = kOutputs}}},
               {.sample = {kFeatures}, .max_local_batch = kBatch, .precision = precision}, backend),
        optimizer_(MakeOptimizer({.kind = OptimizerKind::kAdam, .learning_rate = 0.01}, backend)),
        inputs_(backend, TypedValues(model_.input_type(), RandomValues(kBatch * kFeatures, 5)).bytes),
        labels_(backend, Labels()),
        rates_(backend, 1) {
    const size_t floats = static_cast<size_t>(model_.layout().total);
    for (Buffer& buffer : flat_) {
      buffer = Buffer(backend.allocator(), floats * sizeof(float));
      backend.Zero(buffer.data(), buffer.bytes());
    }
    model_.Bind(flat_[0].span<float>(), flat_[1].span<float>());
    model_.Initialize(11);
    ranges_ = model_.layout().update_ranges();
  }

  // The optimizer writes the copies that layers keep in BFloat16, or they are made anew.
  bool fused = true;

  // All of a step but the rate, which Prepare sets.
  void Enqueue(int64_t n) {
    model_.EnqueueTrainStep(
        {.inputs = inputs_.data(), .labels = labels_.data(), .n = n, .scale = 1.0f / static_cast<float>(n)},
        {});
    const UpdateBuffers buffers{.parameters = flat_[0].as<float>(),
                                .gradients = flat_[1].as<float>(),
                                .slots = {flat_[2].as<float>(), flat_[3].as<float>()},
                                .rates = rates_.data(),
                                .rounded = fused ? model_.rounded_copies() : std::span<const RoundedCopy>()};
    optimizer_->Update(1, buffers, 0, model_.layout().total, ranges_);
    fused ? model_.ParametersUpdated(0, model_.layout().total)
          : model_.ParametersChanged(0, model_.layout().total);
  }
  void Prepare() {
    const StepRates rates = optimizer_->Rates(++steps_);
    backend_.Upload(rates_.data(), &rates, sizeof rates);
  }
  double Step(int64_t n = kBatch) {
    Prepare();
    Enqueue(n);
    return Loss(n);
  }
  double Loss(int64_t n = kBatch) {
    LossSums sums;
    backend_.Download(&sums, model_.loss_sums(), sizeof sums);
    return ResultOf(sums, kOutputs).loss_sum / static_cast<double>(n);
  }
  std::vector<float> Parameters() {
    std::vector<float> values(static_cast<size_t>(model_.layout().total));
    backend_.Download(values.data(), flat_[0].data(), flat_[0].bytes());
    return values;
  }

 private:
  static std::vector<int32_t> Labels() {
    std::vector<int32_t> labels;
    for (int32_t i = 0; i < kBatch; ++i) labels.push_back(i * 7 % kOutputs);
    return labels;
  }

  Backend& backend_;
  Model model_;
  std::unique_ptr<Optimizer> optimizer_;
  OnBackend<unsigned char> inputs_;
  OnBackend<int32_t> labels_;
  OnBackend<StepRates> rates_;
  Buffer flat_[4];
  std::vector<UpdateRange> ranges_;
  int64_t steps_ = 0;
};

class TrainingStepTest : public BackendTest<Case> {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    if (IsSkipped()) return;
    const Support support = backend().Supports(Op::kDense, ComputeType(test_case().precision));
    if (!support.supported) GTEST_SKIP() << support.reason;
  }
};
const auto kPrecisions =
    testing::Values(Case{Precision::kFloat32}, Case{Precision::kTf32}, Case{Precision::kBFloat16});
INSTANTIATE_TEST_SUITE_P(Backends, TrainingStepTest,
                         testing::Combine(testing::ValuesIn(TestBackends()), kPrecisions), TestName<Case>);

// What only devices promise.
class DeviceStepTest : public TrainingStepTest {
 protected:
  DeviceBackend& device() { return dynamic_cast<DeviceBackend&>(backend()); }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceStepTest);
INSTANTIATE_TEST_SUITE_P(Devices, DeviceStepTest,
                         testing::Combine(testing::ValuesIn(TestDevices()), kPrecisions), TestName<Case>);

TEST_P(TrainingStepTest, LossesAreThoseOfTheProcessorInFloat32) {
  std::string why;
  const auto processor = MakeTestBackend(TestBackend::kCpu, &why);
  Training here(backend(), test_case().precision), there(*processor, Precision::kFloat32);
  const double tolerance = test_case().precision == Precision::kFloat32 ? 1e-5 : 2e-2;
  double last = 0;
  for (int i = 0; i < 20; ++i) {
    const int64_t n = i % 5 == 4 ? 17 : kBatch;  // the last batch of an epoch is smaller
    last = here.Step(n);
    ASSERT_NEAR(last, there.Step(n), tolerance * (1 + std::abs(last))) << i;
  }
  EXPECT_LT(last, 2.2);  // from log 10: it learns
}

TEST_P(TrainingStepTest, CopiesThatTheOptimizerWritesAreThoseMadeAnew) {
  Training fused(backend(), test_case().precision), anew(backend(), test_case().precision);
  anew.fused = false;
  for (int i = 0; i < 5; ++i) ASSERT_EQ(fused.Step(), anew.Step()) << i;
  EXPECT_EQ(fused.Parameters(), anew.Parameters());
}

TEST_P(DeviceStepTest, ARecordedStepGivesTheSameBits) {
  Training plain(backend(), test_case().precision), recorded(backend(), test_case().precision);
  plain.Step();
  recorded.Step();
  const auto graph = device().Record([&] { recorded.Enqueue(kBatch); });
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(recorded.Parameters(), plain.Parameters());  // recording runs nothing
  for (int i = 0; i < 10; ++i) {
    const double loss = plain.Step();
    recorded.Prepare();
    graph->Launch();
    ASSERT_EQ(recorded.Loss(), loss) << i;
  }
  EXPECT_EQ(recorded.Parameters(), plain.Parameters());
}

TEST_P(DeviceStepTest, AllocatesNothingAfterTheFirstOfItsSize) {
  Training training(backend(), test_case().precision);
  training.Step();
  training.Step(17);
  const DeviceMemoryUse before = device().memory_use();
  for (int i = 0; i < 10; ++i) training.Step(i % 2 == 0 ? kBatch : 17);
  const DeviceMemoryUse after = device().memory_use();
  EXPECT_EQ(after.used, before.used);
  EXPECT_EQ(after.peak, before.peak);
}

}  // namespace
}  // namespace lockstep::trainer
