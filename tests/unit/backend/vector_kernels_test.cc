#include "trainer/backend/cpu/vector_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/unit/backend/random_values.h"

namespace lockstep::trainer::cpu {
namespace {

// Each kernel in each instruction set that this processor has.
class VectorKernelsTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (BestIsa() < GetParam()) GTEST_SKIP() << "this processor lacks the instruction set";
  }
  const VectorKernels& kernels() const { return KernelsFor(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Isas, VectorKernelsTest, testing::Values(Isa::kBaseline, Isa::kAvx2, Isa::kAvx512),
                         [](const auto& info) {
                           return info.param == Isa::kAvx512 ? "Avx512"
                                  : info.param == Isa::kAvx2 ? "Avx2"
                                                             : "Baseline";
                         });

TEST_P(VectorKernelsTest, AdamFollowsItsFormula) {
  for (const float l2 : {0.0f, 0.01f}) {
    const AdamStep step{.alpha = 0.01f,
                        .one_minus_beta1 = 0.1f,
                        .one_minus_beta2 = 0.001f,
                        .epsilon = 1e-7f,
                        .adjust = {.l2 = l2}};
    const size_t count = 1003;
    const auto w = RandomValues(count, 1), g = RandomValues(count, 2), m = RandomValues(count, 3);
    const auto v = RandomValues(count, 4, 0, 1);
    auto w2 = w, m2 = m, v2 = v;
    kernels().adam(step, 1, count, w2.data(), g.data(), m2.data(), v2.data());
    for (size_t i = 0; i < count; ++i) {
      const double gradient = g[i] + 2.0 * l2 * w[i];
      const double first = m[i] + (gradient - m[i]) * step.one_minus_beta1;
      const double second = v[i] + (gradient * gradient - v[i]) * step.one_minus_beta2;
      ASSERT_NEAR(m2[i], first, 2e-7);
      ASSERT_NEAR(v2[i], second, 2e-7);
      ASSERT_NEAR(w2[i], w[i] - step.alpha * first / (std::sqrt(second) + step.epsilon), 1e-6);
    }
  }
}

TEST_P(VectorKernelsTest, AdamOfZeroGradientAndStateChangesNothing) {
  const AdamStep step{.alpha = 0.01f, .one_minus_beta1 = 0.1f, .one_minus_beta2 = 0.001f, .epsilon = 1e-7f};
  std::vector<float> w(100, 0.5f), zero(100), m(100), v(100);
  kernels().adam(step, 1, 100, w.data(), zero.data(), m.data(), v.data());
  EXPECT_EQ(w, std::vector<float>(100, 0.5f));
  EXPECT_EQ(v, std::vector<float>(100));
}

TEST_P(VectorKernelsTest, SgdFollowsItsFormulas) {
  const size_t count = 77;
  const auto w = RandomValues(count, 1), g = RandomValues(count, 2), velocity = RandomValues(count, 3);
  for (const float l2 : {0.0f, 0.1f}) {
    for (const bool nesterov : {false, true}) {
      for (const float momentum : {0.0f, 0.9f}) {
        const SgdStep step{
            .learning_rate = 0.1f, .momentum = momentum, .nesterov = nesterov, .adjust = {.l2 = l2}};
        auto w2 = w, velocity2 = velocity;
        kernels().sgd(step, 1, count, w2.data(), g.data(), momentum != 0 ? velocity2.data() : nullptr);
        for (size_t i = 0; i < count; ++i) {
          const double move = 0.1 * (g[i] + 2.0 * l2 * w[i]);
          const double speed = momentum * velocity[i] - move;
          const double wanted = momentum == 0 ? w[i] - move
                                : nesterov    ? w[i] + momentum * speed - move
                                              : w[i] + speed;
          ASSERT_NEAR(w2[i], wanted, 1e-6);
          ASSERT_NEAR(velocity2[i], momentum != 0 ? speed : velocity[i], 1e-6);
        }
      }
    }
  }
}

// A ReLU that was not active passes no gradient, and one exactly at zero counts as such (as in TensorFlow).
TEST_P(VectorKernelsTest, ActivationBackwardMasksAndSums) {
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const int64_t units : {1, 10, 64, 100, 256}) {
      const int64_t n = 37;
      const auto count = static_cast<size_t>(n * units);
      std::vector<float> raw = RandomValues(count, 5);
      for (size_t i = 0; i < count; i += 7) raw[i] = 0;
      const TypedValues y(type, raw);
      const TypedValues dy(type, RandomValues(count, 6));
      for (const bool mask : {false, true}) {
        TypedValues masked = dy;
        std::vector<float> bias(static_cast<size_t>(units), -1.0f);
        if (type == DataType::kFloat32) {
          kernels().activation_backward_f32(n, units, mask ? static_cast<const float*>(y.data()) : nullptr,
                                            static_cast<float*>(masked.data()), bias.data());
        } else {
          kernels().activation_backward_bf16(n, units,
                                             mask ? static_cast<const BFloat16*>(y.data()) : nullptr,
                                             static_cast<BFloat16*>(masked.data()), bias.data());
        }
        std::vector<double> sums(static_cast<size_t>(units));
        for (size_t i = 0; i < count; ++i) {
          const float wanted = mask && y.values[i] <= 0 ? 0 : dy.values[i];
          ASSERT_EQ(Element(masked.data(), type, i), wanted);
          sums[i % static_cast<size_t>(units)] += wanted;
        }
        for (size_t i = 0; i < sums.size(); ++i) ASSERT_NEAR(bias[i], sums[i], 1e-4);
      }
    }
  }
}

TEST_P(VectorKernelsTest, ActivationBackwardWithoutBiasOnlyMasks) {
  const auto y = RandomValues(300, 1);
  auto dy = RandomValues(300, 2);
  const auto before = dy;
  kernels().activation_backward_f32(3, 100, y.data(), dy.data(), nullptr);
  for (size_t i = 0; i < dy.size(); ++i) ASSERT_EQ(dy[i], y[i] > 0 ? before[i] : 0.0f);
}

TEST_P(VectorKernelsTest, ConvertsToBFloat16AsOneByOne) {
  auto values = RandomValues(1001, 9, -1e30f, 1e30f);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  values[5] = std::numeric_limits<float>::infinity();
  values[7] = std::numeric_limits<float>::max();
  std::vector<BFloat16> converted(values.size());
  kernels().to_bfloat16(static_cast<int64_t>(values.size()), values.data(), converted.data());
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(converted[i].bits, ToBFloat16(values[i]).bits) << i;
}

TEST_P(VectorKernelsTest, ExponentialsAreAccurateOverTheWholeRange) {
  for (const int64_t outputs : {1, 2, 10, 33}) {
    const int64_t n = 64;
    const auto count = static_cast<size_t>(n * outputs);
    auto logits = RandomValues(count, 3, -60, 60);
    std::vector<float> scratch(count), sums(n), maxima(n);
    kernels().exponentials(n, outputs, logits.data(), scratch.data(), sums.data(), maxima.data());
    for (int64_t r = 0; r < n; ++r) {
      const float* row = logits.data() + r * outputs;
      const float largest = *std::max_element(row, row + outputs);
      ASSERT_EQ(maxima[static_cast<size_t>(r)], largest);
      double sum = 0;
      for (int64_t i = 0; i < outputs; ++i) {
        const double wanted = std::exp(static_cast<double>(row[i] - largest));
        sum += wanted;
        ASSERT_NEAR(scratch[static_cast<size_t>(r * outputs + i)], wanted, 3e-7 * wanted + 2e-38);
      }
      ASSERT_NEAR(sums[static_cast<size_t>(r)], sum, 1e-6 * sum);
    }
  }
}

TEST_P(VectorKernelsTest, ExponentialsOfNanAreNan) {
  const std::vector<float> logits = {1, std::numeric_limits<float>::quiet_NaN(), 2};
  std::vector<float> scratch(3), sums(1), maxima(1);
  kernels().exponentials(1, 3, logits.data(), scratch.data(), sums.data(), maxima.data());
  EXPECT_TRUE(std::isnan(sums[0]));
}

TEST_P(VectorKernelsTest, SumOfSquaresIsInDouble) {
  const auto values = RandomValues(100003, 4);
  double wanted = 0;
  for (const float value : values) wanted += static_cast<double>(value) * value;
  EXPECT_NEAR(kernels().sum_of_squares(static_cast<int64_t>(values.size()), values.data()), wanted,
              1e-9 * wanted);
}

// The ranks of a job each update a shard, wherever it happens to be cut.
TEST_P(VectorKernelsTest, CutsDoNotChangeBits) {
  const AdamStep step{.alpha = 0.01f,
                      .one_minus_beta1 = 0.1f,
                      .one_minus_beta2 = 0.001f,
                      .epsilon = 1e-7f,
                      .adjust = {.l2 = 0.3f}};
  const SgdStep sgd{.learning_rate = 0.1f, .momentum = 0.9f, .nesterov = true, .adjust = {.l2 = 0.3f}};
  const int64_t count = 1000;
  const auto w = RandomValues(count, 1), g = RandomValues(count, 2), m = RandomValues(count, 3);
  const auto v = RandomValues(count, 4, 0, 1);
  auto whole_w = w, whole_m = m, whole_v = v, sgd_w = w, sgd_m = m;
  kernels().adam(step, 1, count, whole_w.data(), g.data(), whole_m.data(), whole_v.data());
  kernels().sgd(sgd, 1, count, sgd_w.data(), g.data(), sgd_m.data());
  auto cut_w = w, cut_m = m, cut_v = v, cut_sgd_w = w, cut_sgd_m = m;
  for (int64_t begin = 0, width = 1; begin < count; width = width * 2 + 1) {
    const int64_t end = std::min(begin + width, count);
    kernels().adam(step, 1, end - begin, cut_w.data() + begin, g.data() + begin, cut_m.data() + begin,
                   cut_v.data() + begin);
    kernels().sgd(sgd, 1, end - begin, cut_sgd_w.data() + begin, g.data() + begin, cut_sgd_m.data() + begin);
    begin = end;
  }
  EXPECT_EQ(cut_w, whole_w);
  EXPECT_EQ(cut_m, whole_m);
  EXPECT_EQ(cut_v, whole_v);
  EXPECT_EQ(cut_sgd_w, sgd_w);
  EXPECT_EQ(cut_sgd_m, sgd_m);
}

TEST(BestIsaTest, StaysBelowItsLimit) {
  EXPECT_EQ(BestIsa(Isa::kBaseline), Isa::kBaseline);
  EXPECT_LE(BestIsa(Isa::kAvx2), Isa::kAvx2);
}

TEST(ScopedFlushDenormalsTest, LastsAsLongAsTheScope) {
  volatile float small = std::numeric_limits<float>::min();
  {
    const ScopedFlushDenormals flush;
    volatile float half = small * 0.5f;
    EXPECT_EQ(half, 0.0f);
  }
  volatile float half = small * 0.5f;
  EXPECT_GT(half, 0.0f);
}

}  // namespace
}  // namespace lockstep::trainer::cpu
