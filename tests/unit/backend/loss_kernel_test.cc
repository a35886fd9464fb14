#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/unit/backend/random_values.h"
#include "trainer/backend/factory.h"
#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

constexpr LossKind kCrossEntropy = LossKind::kSparseCategoricalCrossentropy;

class LossKernelTest : public testing::Test {
 protected:
  std::unique_ptr<LossKernel> Make(LossKind kind, int64_t outputs, DataType type = DataType::kFloat32) {
    return backend_->MakeLoss({.kind = kind, .outputs = outputs, .output_gradient = type});
  }
  static LossResult Run(LossKernel& kernel, int64_t n, const float* y, const void* labels, float scale,
                        void* dy) {
    LossSums sums;
    kernel.Compute(n, y, labels, scale, dy, &sums);
    return ResultOf(sums, 10);
  }
  std::unique_ptr<Backend> backend_ = MakeBackend({.threads = 1});
};

double CrossEntropy(const std::vector<double>& y, size_t label) {
  double sum = 0;
  for (const double value : y) sum += std::exp(value);
  return std::log(sum) - y[label];
}

TEST_F(LossKernelTest, CrossEntropyAndItsGradientAgreeWithNumericalDifferences) {
  const int64_t n = 9, outputs = 10;
  const auto y = RandomValues(90, 1, -5, 5);
  std::vector<int32_t> labels;
  for (int32_t r = 0; r < n; ++r) labels.push_back((r * 7) % 10);
  std::vector<float> dy(90, NAN);
  const float scale = 1.0f / 36;
  const LossResult result = Run(*Make(kCrossEntropy, outputs), n, y.data(), labels.data(), scale, dy.data());
  double loss = 0;
  for (size_t r = 0; r < 9; ++r) {
    std::vector<double> row(y.begin() + static_cast<int64_t>(r) * 10,
                            y.begin() + static_cast<int64_t>(r) * 10 + 10);
    const auto label = static_cast<size_t>(labels[r]);
    loss += CrossEntropy(row, label);
    for (size_t j = 0; j < 10; ++j) {
      auto up = row, down = row;
      up[j] += 1e-5;
      down[j] -= 1e-5;
      const double slope = (CrossEntropy(up, label) - CrossEntropy(down, label)) / 2e-5;
      ASSERT_NEAR(dy[r * 10 + j], slope * scale, 1e-8);
    }
  }
  EXPECT_NEAR(result.loss_sum, loss, 1e-5);
}

TEST_F(LossKernelTest, CrossEntropyOfEqualLogitsIsLogOfTheirNumber) {
  const std::vector<float> y(20, 3.5f);
  const std::vector<int32_t> labels = {0, 7};
  const LossResult result = Run(*Make(kCrossEntropy, 10), 2, y.data(), labels.data(), 1, nullptr);
  EXPECT_NEAR(result.loss_sum, 2 * std::log(10.0), 1e-6);
  EXPECT_EQ(result.correct, 1);  // of equal outputs the first is the answer
}

TEST_F(LossKernelTest, CrossEntropyBearsLargeLogits) {
  const std::vector<float> y = {1e4f, -1e4f, 0, -3e38f, 3e38f, 1};
  const std::vector<int32_t> labels = {0, 1};
  std::vector<float> dy(6);
  const LossResult result = Run(*Make(kCrossEntropy, 3), 2, y.data(), labels.data(), 1, dy.data());
  EXPECT_EQ(result.loss_sum, 0);
  EXPECT_EQ(result.correct, 2);
  EXPECT_THAT(dy, testing::Each(0.0f));
}

TEST_F(LossKernelTest, CountsCorrectAnswers) {
  const std::vector<float> y = {1, 2, 0, 5, 1, 1, 0, 0, 9};
  const std::vector<int32_t> labels = {1, 2, 2};
  EXPECT_EQ(Run(*Make(kCrossEntropy, 3), 3, y.data(), labels.data(), 1, nullptr).correct, 2);
}

TEST_F(LossKernelTest, LabelOutOfRangeIsBadDataAndNamed) {
  const std::vector<float> y(20);
  for (const int32_t bad : {-1, 10, 2147483647}) {
    const std::vector<int32_t> labels = {3, bad};
    std::vector<float> dy(20);
    try {
      Run(*Make(kCrossEntropy, 10), 2, y.data(), labels.data(), 1, dy.data());
      FAIL();
    } catch (const BadData& error) {
      EXPECT_THAT(error.what(),
                  testing::AllOf(testing::HasSubstr("sample 1"), testing::HasSubstr(std::to_string(bad))));
    }
  }
}

TEST_F(LossKernelTest, MeanSquaredErrorIsTheMeanOverOutputs) {
  const std::vector<float> y = {1, 2, 3, 4}, target = {0, 2, 3, 7};
  std::vector<float> dy(4);
  const LossResult result =
      Run(*Make(LossKind::kMeanSquaredError, 2), 2, y.data(), target.data(), 0.5f, dy.data());
  EXPECT_DOUBLE_EQ(result.loss_sum, (1.0 + 0) / 2 + (0 + 9.0) / 2);
  EXPECT_THAT(dy, testing::ElementsAre(0.5f, 0, 0, -1.5f));  // scale · 2 (y − t) / 2
}

TEST_F(LossKernelTest, BFloat16GradientsAreTheRoundedOnes) {
  if (!backend_->Supports(Op::kSoftmaxCrossEntropy, DataType::kBFloat16).supported) GTEST_SKIP();
  const auto y = RandomValues(50, 1, -3, 3);
  const std::vector<int32_t> labels = {0, 1, 2, 3, 9};
  std::vector<float> wide(50);
  std::vector<BFloat16> narrow(50);
  Run(*Make(kCrossEntropy, 10), 5, y.data(), labels.data(), 0.2f, wide.data());
  Run(*Make(kCrossEntropy, 10, DataType::kBFloat16), 5, y.data(), labels.data(), 0.2f, narrow.data());
  for (size_t i = 0; i < 50; ++i) ASSERT_EQ(narrow[i].bits, ToBFloat16(wide[i]).bits);
}

}  // namespace
}  // namespace lockstep::trainer
