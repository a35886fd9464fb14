#include "tests/unit/model/reference.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/model/model_fixture.h"

namespace lockstep::trainer {
namespace {

struct Case {
  std::string name;
  ModelConfig config;
  int64_t features;
  int64_t batch;
};

std::vector<Case> Cases() {
  std::vector<Case> cases = {{"OneLayer", Perceptron({3}), 5, 4},
                             {"TwoLayers", Perceptron({8, 4}), 6, 7},
                             {"ThreeLayers", Perceptron({20, 17, 10}), 33, 32},
                             {"Regression", Perceptron({1}), 1, 80},
                             {"DeepRegression", Perceptron({12, 3}), 4, 9},
                             {"WithoutBias", Perceptron({9, 5}), 7, 6}};
  cases[3].config.loss = cases[4].config.loss = LossKind::kMeanSquaredError;
  for (LayerConfig& layer : cases[5].config.layers) layer.use_bias = false;
  return cases;
}

struct Numeric {
  Precision precision;
  double tolerance;
};

class ReferenceTest : public testing::TestWithParam<std::tuple<Case, Numeric>> {
 protected:
  const Case& model_case() const { return std::get<0>(GetParam()); }
  const Numeric& numeric() const { return std::get<1>(GetParam()); }
  void SetUp() override {
    const auto backend = MakeBackend({.threads = 1});
    const bool narrow = numeric().precision == Precision::kBFloat16;
    if (narrow && !backend->Supports(Op::kDense, DataType::kBFloat16).supported) {
      GTEST_SKIP() << backend->Supports(Op::kDense, DataType::kBFloat16).reason;
    }
  }
  // Weights that BFloat16 has exactly, and biases that are not zero.
  static void Settle(Trained& trained) {
    std::vector<float> canonical = trained.Canonical(trained.parameters());
    for (size_t i = 0; i < canonical.size(); ++i) {
      if (canonical[i] == 0) canonical[i] = 0.03125f * static_cast<float>(i % 7) - 0.0625f;
      canonical[i] = ToFloat(ToBFloat16(canonical[i]));
    }
    trained.model.ImportCanonical(canonical, trained.parameters().data());
    trained.model.ParametersChanged(0, trained.model.layout().total);
  }
};

std::string CaseName(const testing::TestParamInfo<std::tuple<Case, Numeric>>& info) {
  return std::get<0>(info.param).name +
         (std::get<1>(info.param).precision == Precision::kBFloat16 ? "_BFloat16" : "_Float32");
}
INSTANTIATE_TEST_SUITE_P(Models, ReferenceTest,
                         testing::Combine(testing::ValuesIn(Cases()),
                                          testing::Values(Numeric{Precision::kFloat32, 1e-6},
                                                          Numeric{Precision::kBFloat16, 1.5e-2})),
                         CaseName);

TEST_P(ReferenceTest, LossAndGradientsAgreeWithDoubles) {
  const Case& c = model_case();
  Trained trained(c.config,
                  {.sample = {c.features}, .max_local_batch = c.batch, .precision = numeric().precision});
  Settle(trained);
  const Batch batch(c.batch, c.features, c.config.layers.back().units, 11);
  const Reference reference(c.config, c.features);
  const auto canonical = trained.Canonical(trained.parameters());
  const std::vector<double> parameters(canonical.begin(), canonical.end());

  const LossResult result = trained.Step(batch);
  EXPECT_NEAR(result.loss_sum / static_cast<double>(c.batch), reference.Loss(parameters, batch),
              10 * numeric().tolerance);
  const auto gradient = trained.Canonical(trained.gradients());
  const auto wanted = reference.Gradient(parameters, batch);
  ASSERT_EQ(gradient.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(gradient[i], wanted[i], numeric().tolerance) << i;
}

// The reference itself is right: its gradients are the slopes of its loss.
TEST_P(ReferenceTest, ReferenceGradientsAreNumericalSlopes) {
  const Case& c = model_case();
  Trained trained(c.config, {.sample = {c.features}, .max_local_batch = c.batch});
  Settle(trained);
  const Batch batch(c.batch, c.features, c.config.layers.back().units, 11);
  const Reference reference(c.config, c.features);
  const auto canonical = trained.Canonical(trained.parameters());
  std::vector<double> parameters(canonical.begin(), canonical.end());
  const auto gradient = reference.Gradient(parameters, batch);
  for (size_t i = 0; i < parameters.size(); i += 1 + parameters.size() / 200) {
    const double value = parameters[i];
    parameters[i] = value + 1e-6;
    const double up = reference.Loss(parameters, batch);
    parameters[i] = value - 1e-6;
    const double down = reference.Loss(parameters, batch);
    parameters[i] = value;
    ASSERT_NEAR((up - down) / 2e-6, gradient[i], 1e-6) << i;
  }
}

}  // namespace
}  // namespace lockstep::trainer
