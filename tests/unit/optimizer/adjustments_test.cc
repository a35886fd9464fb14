#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/unit/backend/random_values.h"
#include "trainer/backend/factory.h"
#include "trainer/error.h"
#include "trainer/optimizer/optimizer.h"

// What an optimizer does besides its rule: decay, clipping, averaging.
namespace lockstep::trainer {
namespace {

constexpr int64_t kCount = 60;
// The first third is penalised and decays, the second decays, the last does neither.
const std::vector<UpdateRange> kRanges = {{.begin = 0, .end = 20, .l2 = 0.05f, .decays = true},
                                          {.begin = 20, .end = 40, .decays = true}};

// Keras' formulas (keras/src/optimizers/base_optimizer.py), written out in double, with SGD as the rule.
struct Reference {
  void Step(const OptimizerOptions& options, const std::vector<float>& gradients, int64_t step) {
    std::vector<double> g(gradients.begin(), gradients.end());
    double norm = 0;
    for (size_t i = 0; i < g.size(); ++i) {
      if (i < 20) g[i] += 2 * static_cast<double>(0.05f) * w[i];
      norm += g[i] * g[i];
    }
    norm = std::sqrt(norm);
    for (size_t i = 0; i < g.size(); ++i) {
      if (options.global_clip_norm != 0)
        g[i] *= options.global_clip_norm / std::max(norm, options.global_clip_norm);
      if (options.clip_value != 0) g[i] = std::clamp(g[i], -options.clip_value, options.clip_value);
      if (i < 40) w[i] -= options.weight_decay * options.learning_rate * w[i];
      w[i] -= options.learning_rate * g[i];
      average[i] =
          step == 1 ? w[i] : options.average_momentum * average[i] + (1 - options.average_momentum) * w[i];
    }
  }
  std::vector<double> w, average = std::vector<double>(kCount);
};

struct Case {
  std::string name;
  OptimizerOptions options;
};

class AdjustmentsTest : public testing::TestWithParam<Case> {
 protected:
  // Updates in two pieces, as a job's ranks may.
  void Step(Optimizer& optimizer, const std::vector<float>& gradients, int64_t step) {
    std::vector<float> g = gradients;
    UpdateBuffers buffers{w.data(), g.data(), {slot.data()}};
    double squared_norm = 0;
    constexpr int64_t kCut = 33;
    if (optimizer.clips_by_norm()) {
      squared_norm = optimizer.SquaredNorm(w.data(), g.data(), 0, kCut, kRanges) +
                     optimizer.SquaredNorm(w.data(), g.data(), kCut, kCount, kRanges);
      buffers.squared_norm = &squared_norm;
    }
    optimizer.Update(step, buffers, kCut, kCount, kRanges);
    optimizer.Update(step, buffers, 0, kCut, kRanges);
  }

  std::unique_ptr<Backend> backend = MakeBackend({.threads = 1});
  std::vector<float> w = RandomValues(kCount, 1), slot = std::vector<float>(kCount);
};
INSTANTIATE_TEST_SUITE_P(
    Cases, AdjustmentsTest,
    testing::Values(
        Case{"Penalty", {.learning_rate = 0.1}}, Case{"Decay", {.learning_rate = 0.1, .weight_decay = 0.3}},
        Case{"Value", {.learning_rate = 0.1, .clip_value = 0.4}},
        Case{"Norm", {.learning_rate = 0.1, .global_clip_norm = 2}},
        Case{"LargeNorm", {.learning_rate = 0.1, .global_clip_norm = 2000}},
        Case{"All",
             {.learning_rate = 0.1, .weight_decay = 0.3, .global_clip_norm = 2, .average_momentum = 0.9}}),
    [](const auto& info) { return info.param.name; });

TEST_P(AdjustmentsTest, FollowKerasOverManySteps) {
  const auto optimizer = MakeOptimizer(GetParam().options, *backend);
  Reference reference{.w = std::vector<double>(w.begin(), w.end())};
  for (int64_t step = 1; step <= 20; ++step) {
    const auto gradients = RandomValues(kCount, static_cast<uint32_t>(100 + step));
    Step(*optimizer, gradients, step);
    reference.Step(GetParam().options, gradients, step);
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(w[i], reference.w[i], 2e-6) << "step " << step << ", element " << i;
      if (GetParam().options.average_momentum == 0) continue;
      ASSERT_NEAR(slot[i], reference.average[i], 2e-6);
    }
  }
}

TEST(OptimizerAdjustmentsTest, ANormThatIsNoNumberSpoilsTheParametersInsteadOfHidingIt) {
  const auto backend = MakeBackend({.threads = 1});
  const auto optimizer = MakeOptimizer({.global_clip_norm = 1}, *backend);
  for (const float bad : {NAN, INFINITY}) {
    std::vector<float> w(4, 1.0f), g = {0.1f, bad, 0.2f, 0.3f};
    const double squared_norm = optimizer->SquaredNorm(w.data(), g.data(), 0, 4, {});
    optimizer->Update(1, {.parameters = w.data(), .gradients = g.data(), .squared_norm = &squared_norm}, 0, 4,
                      {});
    EXPECT_THAT(w, testing::Each(testing::IsNan()));
  }
}

TEST(OptimizerAdjustmentsTest, WithoutANormItRefuses) {
  const auto backend = MakeBackend({.threads = 1});
  const auto optimizer = MakeOptimizer({.global_clip_norm = 1}, *backend);
  std::vector<float> w(4), g(4);
  EXPECT_THROW(optimizer->Update(1, {.parameters = w.data(), .gradients = g.data()}, 0, 4, {}), Unsupported);
}

TEST(OptimizerAdjustmentsTest, TheRatesAreThoseOfTheStep) {
  const auto backend = MakeBackend({.threads = 1});
  const auto optimizer =
      MakeOptimizer({.learning_rate = 0.1,
                     .schedule = {.kind = ScheduleKind::kExponential, .decay_steps = 1, .decay_rate = 0.5},
                     .weight_decay = 0.01,
                     .average_momentum = 0.9},
                    *backend);
  EXPECT_DOUBLE_EQ(optimizer->learning_rate(3), 0.025);
  const StepRates first = optimizer->Rates(1), third = optimizer->Rates(3);
  EXPECT_FLOAT_EQ(first.rate, 0.1f);
  EXPECT_EQ(first.keep, 0);
  EXPECT_FLOAT_EQ(third.rate, 0.025f);
  EXPECT_FLOAT_EQ(third.decay, 0.00025f);
  EXPECT_FLOAT_EQ(third.keep, 0.9f);
}

}  // namespace
}  // namespace lockstep::trainer
