// Losses of Keras 3.15.1 (on JAX 0.10.2), as make_golden.py prints them, for a perceptron of 6–5–4–3 whose
// parameters and data are sine waves: the whole step — forward, loss, L2, backward, update — against an
// independent framework.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/model/model_fixture.h"

namespace lockstep::trainer {
namespace {

constexpr int64_t kFeatures = 6;
constexpr int64_t kSamples = 8;

struct Golden {
  std::string name;
  LossKind loss;
  OptimizerOptions optimizer;
  double l2;
  std::vector<double> losses;
};

const std::vector<Golden>& Goldens() {
  constexpr LossKind kCrossEntropy = LossKind::kSparseCategoricalCrossentropy;
  constexpr LossKind kSquares = LossKind::kMeanSquaredError;
  static const std::vector<Golden> goldens = {
      {"Adam",
       kCrossEntropy,
       {.kind = OptimizerKind::kAdam, .learning_rate = 0.01},
       0,
       {1.1953923, 1.1819150, 1.1697571, 1.1587141, 1.1482835, 1.1384304}},
      {"AdamL2",
       kCrossEntropy,
       {.kind = OptimizerKind::kAdam, .learning_rate = 0.01},
       0.01,
       {1.3094218, 1.2929318, 1.2777537, 1.2637680, 1.2505765, 1.2381604}},
      {"Sgd",
       kSquares,
       {.kind = OptimizerKind::kSgd, .learning_rate = 0.1},
       1e-4,
       {0.9450721, 0.6948286, 0.5139397, 0.3791892, 0.2777801, 0.2015831}},
      {"Momentum",
       kSquares,
       {.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .momentum = 0.9},
       0,
       {0.9439318, 0.6936898, 0.3543765, 0.0967487, 0.0257030, 0.1337525}},
      {"Nesterov",
       kCrossEntropy,
       {.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .momentum = 0.9, .nesterov = true},
       0.01,
       {1.3094218, 1.2821573, 1.2528741, 1.2272654, 1.2084793, 1.1963617}}};
  return goldens;
}

std::vector<float> Wave(size_t count, double step, double amplitude) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(amplitude * std::sin(step * (static_cast<double>(i) + 1)));
  }
  return values;
}

class GoldenTest : public testing::TestWithParam<Golden> {};
std::string GoldenName(const testing::TestParamInfo<Golden>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Keras, GoldenTest, testing::ValuesIn(Goldens()), GoldenName);

TEST_P(GoldenTest, LossesAreThoseOfKeras) {
  const Golden& golden = GetParam();
  ModelConfig config = Perceptron({5, 4, 3}, golden.l2);
  config.loss = golden.loss;
  Trained trained(config, {.features = kFeatures, .max_local_batch = kSamples});
  trained.model.ImportCanonical(Wave(static_cast<size_t>(trained.model.canonical_size()), 0.7, 0.6),
                                trained.parameters().data());
  trained.model.ParametersChanged(0, trained.model.layout().total);
  Batch batch(kSamples, kFeatures, 3, 0);
  batch.inputs = Wave(kSamples * kFeatures, 1.3, 1.0);
  batch.targets = Wave(kSamples * 3, 2.1, 1.0);
  for (int32_t i = 0; i < kSamples; ++i) batch.labels[static_cast<size_t>(i)] = i % 3;

  const auto optimizer = MakeOptimizer(golden.optimizer, *trained.backend);
  int64_t step = 0;
  for (const double wanted : golden.losses) {
    const double penalty = trained.model.L2Penalty();
    const double loss = trained.Step(batch).loss_sum / kSamples + penalty;
    EXPECT_NEAR(loss, wanted, 2e-6) << "step " << step;
    trained.Update(*optimizer, ++step);
  }
}

}  // namespace
}  // namespace lockstep::trainer
