#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/unit/backend/random_values.h"
#include "tests/unit/backend/test_backends.h"
#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

constexpr LossKind kCrossEntropy = LossKind::kSparseCategoricalCrossentropy;

class LossKernelTest : public BackendTest<AnyCase> {
 protected:
  template <typename Gradient>
  struct Outcome {
    LossResult result;
    std::vector<Gradient> dy;
  };

  // On the whole of `y`, labels being int32 or float.
  template <typename Gradient = float, typename Label>
  Outcome<Gradient> Run(LossKind kind, int64_t outputs, const std::vector<float>& y,
                        const std::vector<Label>& labels, float scale) {
    const DataType type = std::is_same_v<Gradient, float> ? DataType::kFloat32 : DataType::kBFloat16;
    const auto kernel = backend().MakeLoss({.kind = kind, .outputs = outputs, .output_gradient = type});
    const OnBackend<float> y_there(backend(), y);
    const OnBackend<Label> labels_there(backend(), labels);
    const OnBackend<Gradient> dy(backend(), y.size());
    const OnBackend<LossSums> sums(backend(), 1);
    const int64_t n = static_cast<int64_t>(y.size()) / outputs;
    kernel->Compute(n, y_there.data(), labels_there.data(), scale, dy.data(), sums.data());
    const LossSums with_gradient = sums.Fetch()[0];
    kernel->Compute(n, y_there.data(), labels_there.data(), scale, nullptr, sums.data());
    const LossSums without = sums.Fetch()[0];
    EXPECT_EQ(std::bit_cast<uint64_t>(without.loss_sum), std::bit_cast<uint64_t>(with_gradient.loss_sum));
    EXPECT_EQ(without.correct, with_gradient.correct);
    return {ResultOf(with_gradient, outputs), dy.Fetch()};
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, LossKernelTest,
                         testing::Combine(testing::ValuesIn(TestBackends()), testing::Values(AnyCase())),
                         TestName<AnyCase>);

double CrossEntropy(const std::vector<double>& y, size_t label) {
  double sum = 0;
  for (const double value : y) sum += std::exp(value);
  return std::log(sum) - y[label];
}

// Large ones too: rows longer than a warp, more rows than blocks.
TEST_P(LossKernelTest, CrossEntropyAndItsGradientAgreeWithDoubles) {
  for (const auto& [n, outputs] : {std::pair<size_t, size_t>{9, 10}, {1, 1}, {3, 1000}, {2500, 33}}) {
    const auto y = RandomValues(n * outputs, 1, -5, 5);
    std::vector<int32_t> labels;
    for (size_t r = 0; r < n; ++r) labels.push_back(static_cast<int32_t>((r * 7) % outputs));
    const float scale = 1.0f / 36;
    const auto [result, dy] = Run(kCrossEntropy, static_cast<int64_t>(outputs), y, labels, scale);
    double loss = 0;
    int64_t correct = 0;
    for (size_t r = 0; r < n; ++r) {
      const std::vector<double> row(y.begin() + static_cast<int64_t>(r * outputs),
                                    y.begin() + static_cast<int64_t>((r + 1) * outputs));
      const auto label = static_cast<size_t>(labels[r]);
      loss += CrossEntropy(row, label);
      correct += std::max_element(row.begin(), row.end()) - row.begin() == labels[r] ? 1 : 0;
      double sum = 0;
      for (const double value : row) sum += std::exp(value);
      for (size_t j = 0; j < outputs; ++j) {
        const double wanted = std::exp(row[j]) / sum - (j == label ? 1 : 0);
        ASSERT_NEAR(dy[r * outputs + j], wanted * scale, 1e-8);
      }
    }
    EXPECT_NEAR(result.loss_sum, loss, 1e-6 * (1 + loss));
    EXPECT_EQ(result.correct, correct);
  }
}

TEST_P(LossKernelTest, CrossEntropyAndItsGradientAgreeWithNumericalDifferences) {
  const size_t n = 9;
  const auto y = RandomValues(90, 1, -5, 5);
  std::vector<int32_t> labels;
  for (int32_t r = 0; r < 9; ++r) labels.push_back((r * 7) % 10);
  const float scale = 1.0f / 36;
  const auto [result, dy] = Run(kCrossEntropy, 10, y, labels, scale);
  for (size_t r = 0; r < n; ++r) {
    std::vector<double> row(y.begin() + static_cast<int64_t>(r) * 10,
                            y.begin() + static_cast<int64_t>(r) * 10 + 10);
    const auto label = static_cast<size_t>(labels[r]);
    for (size_t j = 0; j < 10; ++j) {
      auto up = row, down = row;
      up[j] += 1e-5;
      down[j] -= 1e-5;
      const double slope = (CrossEntropy(up, label) - CrossEntropy(down, label)) / 2e-5;
      ASSERT_NEAR(dy[r * 10 + j], slope * scale, 1e-8);
    }
  }
}

// Keras' CategoricalCrossentropy(label_smoothing), written out in double.
TEST_P(LossKernelTest, SmoothedLabelsAreATargetSpreadOverAllClasses) {
  for (const auto& [n, outputs] : {std::pair<size_t, size_t>{9, 10}, {2500, 33}, {4, 2}}) {
    const double smoothing = 0.1f, scale = 0.25;
    const auto y = RandomValues(n * outputs, 1, -5, 5);
    std::vector<int32_t> labels;
    for (size_t r = 0; r < n; ++r) labels.push_back(static_cast<int32_t>((r * 7) % outputs));
    const auto kernel = backend().MakeLoss(
        {.kind = kCrossEntropy, .outputs = static_cast<int64_t>(outputs), .label_smoothing = 0.1f});
    const OnBackend<float> y_there(backend(), y), dy(backend(), y.size());
    const OnBackend<int32_t> labels_there(backend(), labels);
    const OnBackend<LossSums> sums(backend(), 1);
    kernel->Compute(static_cast<int64_t>(n), y_there.data(), labels_there.data(), static_cast<float>(scale),
                    dy.data(), sums.data());
    const auto gradient = dy.Fetch();
    double loss = 0;
    for (size_t r = 0; r < n; ++r) {
      double sum = 0;
      for (size_t j = 0; j < outputs; ++j) sum += std::exp(static_cast<double>(y[r * outputs + j]));
      for (size_t j = 0; j < outputs; ++j) {
        const double target = smoothing / static_cast<double>(outputs) +
                              (static_cast<size_t>(labels[r]) == j ? 1 - smoothing : 0);
        const double probability = std::exp(static_cast<double>(y[r * outputs + j])) / sum;
        loss -= target * std::log(probability);
        ASSERT_NEAR(gradient[r * outputs + j], scale * (probability - target), 1e-7);
      }
    }
    EXPECT_NEAR(sums.Fetch()[0].loss_sum, loss, 1e-6 * loss);
  }
}

TEST_P(LossKernelTest, APieceAddsToThoseBefore) {
  const auto y = RandomValues(70, 1, -5, 5);
  const std::vector<int32_t> labels = {0, 1, 2, 3, 4, 5, 6};
  const std::vector<float> targets = RandomValues(70, 2);
  const OnBackend<float> y_there(backend(), y), targets_there(backend(), targets), dy(backend(), y.size());
  const OnBackend<int32_t> labels_there(backend(), labels);
  for (const LossKind kind : {kCrossEntropy, LossKind::kMeanSquaredError}) {
    const auto kernel = backend().MakeLoss({.kind = kind, .outputs = 10});
    const auto labels_at = [&](int64_t r) {
      return kind == kCrossEntropy ? static_cast<const void*>(labels_there.data() + r)
                                   : targets_there.data() + r * 10;
    };
    const OnBackend<LossSums> whole(backend(), 1), pieces(backend(), 1);
    kernel->Compute(7, y_there.data(), labels_at(0), 1, nullptr, whole.data());
    kernel->Compute(3, y_there.data(), labels_at(0), 1, dy.data(), pieces.data());
    kernel->Compute(4, y_there.data() + 30, labels_at(3), 1, dy.data(), pieces.data(), 3);
    EXPECT_NEAR(pieces.Fetch()[0].loss_sum, whole.Fetch()[0].loss_sum, 1e-9);
    EXPECT_EQ(pieces.Fetch()[0].correct, whole.Fetch()[0].correct);
  }
}

// The number that is told is the sample's in the whole step; of several the first.
TEST_P(LossKernelTest, AWrongLabelInALaterPieceIsNumberedInTheWhole) {
  const OnBackend<float> y(backend(), RandomValues(30, 1));
  const OnBackend<int32_t> labels(backend(), std::vector<int32_t>{1, 77, 2});
  const OnBackend<LossSums> sums(backend(), 1);
  const auto kernel = backend().MakeLoss({.kind = kCrossEntropy, .outputs = 10});
  kernel->Compute(1, y.data(), labels.data(), 1, nullptr, sums.data());
  kernel->Compute(3, y.data(), labels.data(), 1, nullptr, sums.data(), 4);
  EXPECT_EQ(sums.Fetch()[0].wrong, 4 + 1 + 1);
  EXPECT_EQ(sums.Fetch()[0].wrong_label, 77);
  kernel->Compute(3, y.data(), labels.data(), 1, nullptr, sums.data(), 7);
  EXPECT_EQ(sums.Fetch()[0].wrong, 4 + 1 + 1);
}

TEST_P(LossKernelTest, CrossEntropyOfEqualLogitsIsLogOfTheirNumber) {
  const auto [result, dy] =
      Run(kCrossEntropy, 10, std::vector<float>(20, 3.5f), std::vector<int32_t>{0, 7}, 1);
  EXPECT_NEAR(result.loss_sum, 2 * std::log(10.0), 1e-6);
  EXPECT_EQ(result.correct, 1);  // of equal outputs the first is the answer
}

TEST_P(LossKernelTest, CrossEntropyBearsLargeLogits) {
  const std::vector<float> y = {1e4f, -1e4f, 0, -3e38f, 3e38f, 1};
  const auto [result, dy] = Run(kCrossEntropy, 3, y, std::vector<int32_t>{0, 1}, 1);
  EXPECT_EQ(result.loss_sum, 0);
  EXPECT_EQ(result.correct, 2);
  EXPECT_THAT(dy, testing::Each(0.0f));
}

TEST_P(LossKernelTest, LossOfNanIsNan) {
  for (const size_t at : {0, 1, 2}) {
    std::vector<float> y = {1, 2, 3};
    y[at] = NAN;
    EXPECT_TRUE(std::isnan(Run(kCrossEntropy, 3, y, std::vector<int32_t>{1}, 1).result.loss_sum)) << at;
  }
}

TEST_P(LossKernelTest, CountsCorrectAnswers) {
  const std::vector<float> y = {1, 2, 0, 5, 1, 1, 0, 0, 9};
  EXPECT_EQ(Run(kCrossEntropy, 3, y, std::vector<int32_t>{1, 2, 2}, 1).result.correct, 2);
}

TEST_P(LossKernelTest, LabelOutOfRangeIsBadDataAndNamed) {
  for (const int32_t bad : {-1, 10, 2147483647}) {
    std::vector<int32_t> labels(3000, 3);
    labels[1] = bad;
    labels[2] = labels[2999] = -5;  // the first is the one that is named
    try {
      Run(kCrossEntropy, 10, std::vector<float>(30000), labels, 1);
      FAIL();
    } catch (const BadData& error) {
      EXPECT_THAT(error.what(),
                  testing::AllOf(testing::HasSubstr("sample 1 "), testing::HasSubstr(std::to_string(bad))));
    }
  }
}

TEST_P(LossKernelTest, MeanSquaredErrorIsTheMeanOverOutputs) {
  const auto [result, dy] =
      Run(LossKind::kMeanSquaredError, 2, {1, 2, 3, 4}, std::vector<float>{0, 2, 3, 7}, 0.5f);
  EXPECT_DOUBLE_EQ(result.loss_sum, (1.0 + 0) / 2 + (0 + 9.0) / 2);
  EXPECT_THAT(dy, testing::ElementsAre(0.5f, 0, 0, -1.5f));  // scale · 2 (y − t) / 2
}

TEST_P(LossKernelTest, MeanSquaredErrorOfManyAgreesWithDoubles) {
  const size_t count = 100003;
  const auto y = RandomValues(count, 1), target = RandomValues(count, 2);
  double wanted = 0;
  for (size_t i = 0; i < count; ++i) {
    wanted += (static_cast<double>(y[i]) - target[i]) * (static_cast<double>(y[i]) - target[i]);
  }
  const auto [result, dy] = Run(LossKind::kMeanSquaredError, 1, y, target, 0.25f);
  EXPECT_NEAR(result.loss_sum, wanted, 1e-9 * wanted);
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(dy[i], 0.5f * (y[i] - target[i]));
}

TEST_P(LossKernelTest, GivesTheSameBitsEachTime) {
  const auto y = RandomValues(10000, 3, -9, 9);
  const std::vector<int32_t> labels(1000, 4);
  const double first = Run(kCrossEntropy, 10, y, labels, 1).result.loss_sum;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Run(kCrossEntropy, 10, y, labels, 1).result.loss_sum, first);
}

TEST_P(LossKernelTest, BFloat16GradientsAreTheRoundedOnes) {
  if (!backend().Supports(Op::kSoftmaxCrossEntropy, DataType::kBFloat16).supported) GTEST_SKIP();
  const auto y = RandomValues(50, 1, -3, 3);
  const std::vector<int32_t> labels = {0, 1, 2, 3, 9};
  const auto wide = Run<float>(kCrossEntropy, 10, y, labels, 0.2f).dy;
  const auto narrow = Run<BFloat16>(kCrossEntropy, 10, y, labels, 0.2f).dy;
  for (size_t i = 0; i < 50; ++i) ASSERT_EQ(narrow[i].bits, ToBFloat16(wide[i]).bits);
}

}  // namespace
}  // namespace lockstep::trainer
