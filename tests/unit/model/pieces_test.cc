#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/model/model_fixture.h"
#include "trainer/error.h"

// Steps that are worked off in pieces.
namespace lockstep::trainer {
namespace {

constexpr int64_t kSamples = 13, kFeatures = 7, kOutputs = 4;

Trained Make(int pieces, LossKind loss = LossKind::kSparseCategoricalCrossentropy) {
  ModelConfig config = Perceptron({9, 6, kOutputs});
  config.loss = loss;
  return {config, {.sample = {kFeatures}, .max_local_batch = kSamples, .pieces = pieces}};
}

class PiecesTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Pieces, PiecesTest, testing::Values(2, 3, 5, 13, 40),
                         testing::PrintToStringParamName());

TEST_P(PiecesTest, LossesAndParametersAreThoseOfTheWhole) {
  for (const LossKind loss : {LossKind::kSparseCategoricalCrossentropy, LossKind::kMeanSquaredError}) {
    Trained whole = Make(1, loss), pieces = Make(GetParam(), loss);
    const OptimizerOptions options{.kind = OptimizerKind::kAdam, .learning_rate = 0.01};
    const auto optimizer = MakeOptimizer(options, *whole.backend);
    for (int64_t step = 1; step <= 20; ++step) {
      const Batch batch(kSamples, kFeatures, kOutputs, static_cast<uint32_t>(step));
      const LossResult a = whole.Step(batch), b = pieces.Step(batch);
      EXPECT_NEAR(b.loss_sum / a.loss_sum, 1, 1e-6) << "step " << step;
      EXPECT_EQ(b.correct, a.correct);
      whole.Update(*optimizer, step);
      pieces.Update(*optimizer, step);
    }
  }
}

TEST_P(PiecesTest, GradientsAreReadyInTheLastPieceAlone) {
  Trained trained = Make(GetParam());
  const Batch batch(kSamples, kFeatures, kOutputs, 1);
  Trained whole = Make(1);
  whole.Step(batch);
  int64_t ready = 0;
  trained.Step(batch, [&](int64_t begin, int64_t end) {
    EXPECT_EQ(begin, ready);
    ready = end;
    // They are complete: nothing comes later.
    for (int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<size_t>(i);
      ASSERT_NEAR(trained.gradients()[at], whole.gradients()[at], 1e-6);
      trained.parameters()[at] = NAN;
    }
  });
  EXPECT_EQ(ready, trained.model.layout().total);
}

TEST_P(PiecesTest, FewSamplesOrNoneAreTakenToo) {
  for (const int64_t n : {0, 1, 2}) {
    Trained whole = Make(1), pieces = Make(GetParam());
    const Batch batch(2, kFeatures, kOutputs, 1);
    const ModelBatch some{.inputs = n == 0 ? nullptr : batch.inputs.data(),
                          .labels = n == 0 ? nullptr : batch.labels.data(),
                          .n = n,
                          .scale = 0.5f};
    const LossResult a = whole.model.TrainStep(some, {}), b = pieces.model.TrainStep(some, {});
    EXPECT_NEAR(a.loss_sum, b.loss_sum, 1e-6);
    for (size_t i = 0; i < whole.gradients().size(); ++i) {
      ASSERT_NEAR(whole.gradients()[i], pieces.gradients()[i], 1e-6) << n;
    }
  }
}

TEST_P(PiecesTest, AWrongLabelIsNumberedInTheWholeStep) {
  Trained trained = Make(GetParam());
  Batch batch(kSamples, kFeatures, kOutputs, 1);
  batch.labels[11] = 99;
  try {
    trained.Step(batch);
    FAIL();
  } catch (const BadData& error) {
    EXPECT_NE(std::string(error.what()).find("sample 11"), std::string::npos) << error.what();
  }
}

TEST_P(PiecesTest, APassHasTheSamplesOfAPiece) {
  Trained trained = Make(GetParam());
  EXPECT_EQ(trained.model.max_pass(), (kSamples + GetParam() - 1) / GetParam());
  const Batch batch(kSamples, kFeatures, kOutputs, 1);
  EXPECT_NO_THROW(trained.model.Evaluate(batch.inputs.data(), batch.labels.data(), trained.model.max_pass()));
  EXPECT_THROW(trained.model.Evaluate(batch.inputs.data(), batch.labels.data(), trained.model.max_pass() + 1),
               BadModel);
}

}  // namespace
}  // namespace lockstep::trainer
