// Losses of Keras 3.15.1 (on JAX 0.10.2), as make_golden.py prints them, for a perceptron of 6–5–4–3 whose
// parameters and data are sine waves: the whole step — forward, loss, L2, backward, update — against an
// independent framework.
#include <gtest/gtest.h>

#include <algorithm>
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
  float smoothing = 0;
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
       {1.3094218, 1.2821573, 1.2528741, 1.2272654, 1.2084793, 1.1963617}},
      {"AdamDecay",
       kCrossEntropy,
       {.kind = OptimizerKind::kAdam, .learning_rate = 0.01, .weight_decay = 0.5},
       0,
       {1.1953923, 1.1816895, 1.1694710, 1.1584185, 1.1480618, 1.1383606}},
      {"MomentumDecay",
       kSquares,
       {.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.2},
       0,
       {0.9439318, 0.6931522, 0.3573772, 0.1008705, 0.0199386, 0.1084610}},
      {"ClipValue",
       kSquares,
       {.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .clip_value = 0.05},
       0.01,
       {1.0579613, 1.0280215, 0.9987367, 0.9700291, 0.9418313, 0.9140865}},
      {"ClipNorm",
       kSquares,
       {.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .momentum = 0.9, .global_clip_norm = 0.4},
       0.01,
       {1.0579613, 0.9932037, 0.8771363, 0.7269011, 0.5611837, 0.3989846}},
      {"AdamClipNorm",
       kCrossEntropy,
       {.kind = OptimizerKind::kAdam, .learning_rate = 0.01, .global_clip_norm = 0.1},
       0.01,
       {1.3094218, 1.2929367, 1.2777244, 1.2636602, 1.2503363, 1.2377280}},
      // The last one with the averaged parameters.
      {"Average",
       kSquares,
       {.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .average_momentum = 0.7},
       0,
       {0.9439318, 0.6936898, 0.5127961, 0.3780383, 0.2766213, 0.2004169, 0.2929511}},
      {"Cosine",
       kSquares,
       {.kind = OptimizerKind::kSgd,
        .learning_rate = 0.1,
        .schedule = {.kind = ScheduleKind::kCosine,
                     .warm_up_steps = 2,
                     .warm_up_from = 0.02,
                     .decay_steps = 4,
                     .final_learning_rate = 0.01}},
       0,
       {0.9439318, 0.8904382, 0.7446583, 0.5495325, 0.4229138, 0.3587894}},
      {"Smoothing",
       kCrossEntropy,
       {.kind = OptimizerKind::kAdam, .learning_rate = 0.01},
       0.01,
       {1.3044909, 1.2885593, 1.2740264, 1.2606108, 1.2479851, 1.2361283},
       0.1f}};
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
  config.label_smoothing = golden.smoothing;
  Trained trained(config, {.sample = {kFeatures}, .max_local_batch = kSamples});
  trained.model.ImportCanonical(Wave(static_cast<size_t>(trained.model.canonical_size()), 0.7, 0.6),
                                trained.parameters().data());
  trained.model.ParametersChanged(0, trained.model.layout().total);
  Batch batch(kSamples, kFeatures, 3, 0);
  batch.inputs = Wave(kSamples * kFeatures, 1.3, 1.0);
  batch.targets = Wave(kSamples * 3, 2.1, 1.0);
  for (int32_t i = 0; i < kSamples; ++i) batch.labels[static_cast<size_t>(i)] = i % 3;

  const auto optimizer = MakeOptimizer(golden.optimizer, *trained.backend);
  int64_t step = 0;
  constexpr int64_t kSteps = 6;
  for (const double wanted : golden.losses) {
    if (step == kSteps) {
      const int average = optimizer->average_slot();
      ASSERT_GE(average, 0);
      std::ranges::copy(trained.flat[2 + average].span<float>(), trained.parameters().begin());
      trained.model.ParametersChanged(0, trained.model.layout().total);
    }
    const double penalty = trained.model.L2Penalty();
    const double loss = trained.Step(batch).loss_sum / kSamples + penalty;
    EXPECT_NEAR(loss, wanted, 2e-6) << "step " << step;
    trained.Update(*optimizer, ++step);
  }
}

}  // namespace
}  // namespace lockstep::trainer
