// Every kind of layer, on each backend: losses against PyTorch's (2.15.0, in double; make_layer_golden.py
// prints them), and gradients against differences of the loss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/unit/backend/test_backends.h"
#include "tests/unit/model/layer_nets.h"
#include "trainer/error.h"
#include "trainer/model/model.h"
#include "trainer/optimizer/optimizer.h"

namespace lockstep::trainer {
namespace {

constexpr int64_t kSamples = 8, kOutputs = 3;

struct Case {
  Net net;
  std::vector<double> losses;
};
std::string NameOf(const Case& c) { return c.net.name; }

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {Towers(), {1.1317807, 1.1241589, 1.1177236, 1.1122834, 1.1076806, 1.1037842}},
      {ResNet(), {1.1413522, 1.1332488, 1.0915842, 1.0856970, 1.0839919, 1.0891036}},
      {Words(), {1.1127283, 1.1068529, 1.1018555, 1.0975778, 1.0938901, 1.0906853}}};
  return cases;
}

// A model whose parameters and samples are sine waves.
struct Waves {
  Waves(Backend& backend, const Net& net)
      : backend(backend),
        model({.layers = net.layers}, {.sample = net.sample, .max_local_batch = kSamples}, backend),
        total(static_cast<size_t>(model.layout().total)),
        parameters(backend, total),
        gradients(backend, total) {
    model.Bind({parameters.data(), total}, {gradients.data(), total});
    model.Initialize(7);
    std::vector<float> canonical(static_cast<size_t>(model.canonical_size()));
    Fill(canonical, 0.7, 0.4);
    Set(canonical);
    inputs.resize(static_cast<size_t>(kSamples * model.features()));
    Fill(inputs, 1.3, 1);
    for (size_t i = 0; i < inputs.size() && net.input_amplitude == 0; ++i) {
      inputs[i] = static_cast<float>((i * 5 + i / 7) % 7);
    }
    for (int32_t i = 0; i < kSamples; ++i) labels.push_back(i % static_cast<int32_t>(kOutputs));
    numbers.resize(kSamples);
    std::iota(numbers.begin(), numbers.end(), 100U);
  }

  static void Fill(std::span<float> values, double step, double amplitude) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(amplitude * std::sin(step * (static_cast<double>(i) + 1)));
    }
  }
  void Set(const std::vector<float>& canonical) {
    std::vector<float> stored(total);
    model.ImportCanonical(canonical, stored.data());
    backend.Upload(parameters.data(), stored.data(), total * sizeof(float));
    model.ParametersChanged(0, model.layout().total);
  }
  std::vector<float> Canonical(const OnBackend<float>& from) {
    std::vector<float> values(static_cast<size_t>(model.canonical_size()));
    model.ExportCanonical(from.Fetch().data(), values);
    return values;
  }
  // The sum over the samples.
  double Loss() {
    const OnBackend<float> x(backend, inputs);
    const OnBackend<int32_t> of(backend, labels);
    return model
        .TrainStep({.inputs = x.data(),
                    .labels = of.data(),
                    .n = kSamples,
                    .scale = 1.0F / kSamples,
                    .keys = {.seed = 3, .epoch = 1, .samples = numbers}},
                   {})
        .loss_sum;
  }
  void Update(Optimizer& optimizer, int64_t step) {
    optimizer.Update(step, {.parameters = parameters.data(), .gradients = gradients.data()}, 0,
                     model.layout().total, model.layout().update_ranges());
    model.ParametersChanged(0, model.layout().total);
  }
  // What the model makes of samples.
  std::vector<float> Outputs(const Pass& pass) {
    const OnBackend<float> x(backend, inputs);
    std::vector<float> outputs(static_cast<size_t>(pass.n * kOutputs));
    backend.Download(outputs.data(), model.Forward(pass, x.data()), outputs.size() * sizeof(float));
    return outputs;
  }
  std::vector<float> Predictions() { return Outputs({.n = kSamples}); }

  Backend& backend;
  Model model;
  size_t total;
  OnBackend<float> parameters, gradients;
  std::vector<float> inputs;
  std::vector<int32_t> labels;
  std::vector<uint32_t> numbers;
};

// Skips what the backend says it cannot do.
template <typename Case>
class OnEveryBackend : public BackendTest<Case> {
 protected:
  void NeedsLayersOf(const Net& net) {
    for (const LayerConfig& layer : net.layers) {
      for (const Op op : OpsOf(layer)) {
        const Support support = this->backend().Supports(op, DataType::kFloat32);
        if (!support.supported) GTEST_SKIP() << OpName(op) << ": " << support.reason;
      }
    }
  }
};

class LayersTest : public OnEveryBackend<Case> {
 protected:
  void SetUp() override {
    OnEveryBackend::SetUp();
    if (!IsSkipped()) NeedsLayersOf(test_case().net);
  }
};
INSTANTIATE_TEST_SUITE_P(Nets, LayersTest,
                         ::testing::Combine(::testing::ValuesIn(TestBackends()),
                                            ::testing::ValuesIn(Cases())),
                         TestName<Case>);

TEST_P(LayersTest, TrainsAsPyTorchDoes) {
  Waves waves(backend(), test_case().net);
  const auto optimizer = MakeOptimizer({.learning_rate = 0.2}, backend());
  std::vector<double> losses;
  for (int step = 1; step <= 6; ++step) {
    losses.push_back(waves.Loss() / kSamples);
    waves.Update(*optimizer, step);
  }
  EXPECT_THAT(losses, ::testing::Pointwise(::testing::DoubleNear(2e-6), test_case().losses));
}

// How exactly the slope is to be met that is measured with steps of h. Where a ReLU or a maximum turns within
// them it is another number.
struct Slope {
  double h;
  double absolute;
  double relative;
};
constexpr Slope kSmooth{1e-3, 5e-4, 0.01}, kBent{5e-4, 5e-3, 0.2};

// Of each variable the slope along a direction in which all its elements move.
void ExpectRightGradients(Backend& backend, const Net& net, const Slope& slope) {
  Waves waves(backend, net);
  const std::vector<float> canonical = waves.Canonical(waves.parameters);
  waves.Loss();
  const std::vector<float> gradients = waves.Canonical(waves.gradients);
  size_t first = 0;
  for (const NamedShape& variable : waves.model.variables()) {
    const auto size = static_cast<size_t>(variable.shape.num_elements());
    std::vector<double> direction(size);
    for (size_t i = 0; i < size; ++i) direction[i] = std::sin(1.7 * static_cast<double>(i) + 1);
    const double length =
        std::sqrt(std::inner_product(direction.begin(), direction.end(), direction.begin(), 0.0));
    double analytic = 0;
    for (size_t i = 0; i < size; ++i) analytic += gradients[first + i] * (direction[i] /= length);
    const auto loss_at = [&](double h) {
      std::vector<float> moved = canonical;
      for (size_t i = 0; i < size; ++i) moved[first + i] += static_cast<float>(h * direction[i]);
      waves.Set(moved);
      return waves.Loss() / kSamples;
    };
    // To the fourth order of h (Abramowitz, Stegun: Handbook of Mathematical Functions, 25.3.21
    // and 25.3.6).
    const double near = loss_at(slope.h) - loss_at(-slope.h);
    const double far = loss_at(2 * slope.h) - loss_at(-2 * slope.h);
    const double numeric = (8 * near - far) / (12.0 * slope.h);
    EXPECT_NEAR(analytic, numeric, slope.absolute + slope.relative * std::abs(numeric)) << variable.name;
    first += size;
  }
}

// With GELU in the place of ReLU, which has its own kernel.
std::vector<LayerConfig> Smooth(std::vector<LayerConfig> layers) {
  for (LayerConfig& layer : layers) {
    layer.body = Smooth(layer.body);
    layer.shortcut = Smooth(layer.shortcut);
    if (layer.activation != Activation::kRelu) continue;
    layer.activation = layer.kind == LayerKind::kResidual ? Activation::kNone : Activation::kGelu;
  }
  return layers;
}

// (ReLU's are PyTorch's, above.)
TEST_P(LayersTest, GradientsAreThoseOfTheLoss) {
  Net net = test_case().net;
  net.layers = Smooth(net.layers);
  ExpectRightGradients(backend(), net, kSmooth);
}

using LayerKindsTest = OnEveryBackend<AnyCase>;
INSTANTIATE_TEST_SUITE_P(Backends, LayerKindsTest,
                         ::testing::Combine(::testing::ValuesIn(TestBackends()),
                                            ::testing::Values(AnyCase())),
                         TestName<AnyCase>);

Net WhatTheNetsLack() {
  const LayerConfig dropout{.kind = LayerKind::kDropout, .rate = 0.3};
  const LayerConfig plain_pool{.kind = LayerKind::kMaxPool2D, .padding = Padding::kValid};
  const LayerConfig average{
      .kind = LayerKind::kAveragePool2D, .pool_size = {3, 2}, .strides = {2, 1}, .padding = Padding::kSame};
  LayerConfig valid = Conv(5, 3, 2, Activation::kGelu, true);
  valid.padding = Padding::kValid;
  valid.kernel_size[1] = 2;
  const LayerConfig bare{.kind = LayerKind::kBatchNormalization, .center = false, .scale = false};
  // A body that spoils the gradient that the shortcut needs too, a residual in a residual, and no activation.
  const LayerConfig inner{.kind = LayerKind::kResidual, .body = {Conv(5, 3, 1, Activation::kRelu, true)}};
  const LayerConfig outer{.kind = LayerKind::kResidual,
                          .body = {inner, Conv(5, 1, 1, Activation::kRelu, true)},
                          .shortcut = {Conv(5, 3, 1, Activation::kRelu, false)}};
  return {.name = "Rest",
          .sample = {9, 8, 2},
          .layers = {valid, bare, outer, average, plain_pool, dropout,
                     Normalized(LayerKind::kLayerNormalization), Units(3)}};
}

TEST_P(LayerKindsTest, GradientsOfWhatTheNetsLackAreThoseOfTheLoss) {
  const Net net = WhatTheNetsLack();
  NeedsLayersOf(net);
  if (IsSkipped()) return;
  ExpectRightGradients(backend(), net, kBent);
}

TEST_P(LayerKindsTest, SoAreTheyWithGeluInThePlaceOfRelu) {
  Net net = WhatTheNetsLack();
  net.layers = Smooth(net.layers);
  NeedsLayersOf(net);
  if (IsSkipped()) return;
  ExpectRightGradients(backend(), net, kSmooth);
}

TEST_P(LayerKindsTest, ASoftmaxAtTheEndIsTheLossesOwn) {
  Net logits = Towers(), probabilities = Towers(), apart = Towers();
  probabilities.layers.back().activation = Activation::kSoftmax;
  apart.layers.push_back({.kind = LayerKind::kActivation, .activation = Activation::kSoftmax});
  NeedsLayersOf(logits);
  if (IsSkipped()) return;
  const double wanted = Waves(backend(), logits).Loss();
  EXPECT_EQ(Waves(backend(), probabilities).Loss(), wanted);
  EXPECT_EQ(Waves(backend(), apart).Loss(), wanted);
}

TEST_P(LayerKindsTest, DropoutFollowsTheSampleAndIsOfTrainingOnly) {
  Net net{.name = "Dropout",
          .sample = {300},
          .layers = {{.kind = LayerKind::kDropout, .rate = 0.25}, Units(kOutputs)}};
  Waves with(backend(), net);
  std::fill(with.inputs.begin(), with.inputs.end(), 1.0F);
  const auto outputs = [&](std::vector<uint32_t> samples, int64_t epoch) {
    const Pass pass{.n = static_cast<int64_t>(samples.size()),
                    .training = true,
                    .keys = {.seed = 5, .epoch = epoch, .samples = samples}};
    return with.Outputs(pass);
  };
  const std::vector<float> three = outputs({7, 8, 9}, 0);
  const std::vector<float> one = outputs({8}, 0);
  EXPECT_THAT(one, ::testing::ElementsAreArray(three.data() + kOutputs, kOutputs));
  EXPECT_NE(outputs({8}, 1), one);
  EXPECT_THROW(with.Outputs({.n = 2, .training = true}), BadModel);

  // As many stay as should, and what is expected of them is kept.
  std::vector<float> ones(static_cast<size_t>(with.model.canonical_size()), 0.0F);
  for (size_t i = 0; i < 300; ++i) ones[i * kOutputs] = 1;
  with.Set(ones);
  double mean = 0;
  for (uint32_t sample = 0; sample < 200; ++sample) mean += outputs({sample}, 0)[0] / 200;
  EXPECT_NEAR(mean, 300, 4 * std::sqrt(300 * 0.25 / 0.75 / 200));

  net.layers.erase(net.layers.begin());
  Waves without(backend(), net);
  Waves fresh(backend(), {.name = "Dropout",
                          .sample = {300},
                          .layers = {{.kind = LayerKind::kDropout, .rate = 0.25}, Units(kOutputs)}});
  EXPECT_EQ(fresh.Predictions(), without.Predictions());
}

TEST_P(LayerKindsTest, MovingStatisticsMoveAsKerasSaysAndNormaliseOutsideOfTraining) {
  Waves waves(backend(), {.name = "BatchNormalization",
                          .sample = {kOutputs},
                          .layers = {{.kind = LayerKind::kBatchNormalization,
                                      .momentum = 0.75,
                                      .epsilon = 0.01,
                                      .center = false,
                                      .scale = false},
                                     {.kind = LayerKind::kFlatten}}});
  ASSERT_EQ(waves.model.state_size(), 2 * kOutputs);
  EXPECT_EQ(waves.model.state_variables()[1].name, "batch_normalization/moving_variance");
  std::vector<float> state(2 * kOutputs);
  waves.model.ExportState(state);
  EXPECT_THAT(state, ::testing::ElementsAre(0, 0, 0, 1, 1, 1));
  waves.Loss();
  waves.model.ExportState(state);
  for (size_t c = 0; c < kOutputs; ++c) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < kSamples; ++i) mean += waves.inputs[i * kOutputs + c] / double{kSamples};
    for (size_t i = 0; i < kSamples; ++i) {
      variance += std::pow(waves.inputs[i * kOutputs + c] - mean, 2) / double{kSamples};
    }
    EXPECT_NEAR(state[c], 0.25 * mean, 1e-6);
    EXPECT_NEAR(state[kOutputs + c], 0.75 + 0.25 * variance, 1e-6);
  }

  const std::vector<float> other{0.5F, -1, 2, 4, 0.25F, 1};
  waves.model.ImportState(other);
  const std::vector<float> predictions = waves.Predictions();
  for (size_t i = 0; i < predictions.size(); ++i) {
    const size_t c = i % kOutputs;
    EXPECT_NEAR(predictions[i], (waves.inputs[i] - other[c]) / std::sqrt(other[kOutputs + c] + 0.01), 1e-5);
  }
  waves.model.ExportState(state);
  EXPECT_EQ(state, other);
}

TEST_P(LayerKindsTest, SaysWhatDoesNotFit) {
  NeedsLayersOf(Towers());
  if (IsSkipped()) return;
  const auto complaint = [&](const std::vector<LayerConfig>& layers, const Shape& sample) -> std::string {
    try {
      Waves(backend(), {.name = "", .sample = sample, .layers = layers});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto has = [](const char* text) { return ::testing::HasSubstr(text); };
  EXPECT_THAT(complaint({Conv(3, 3, 1, Activation::kNone, true)}, {12}), has("it takes images"));
  LayerConfig large = Conv(3, 5, 1, Activation::kNone, true);
  large.padding = Padding::kValid;
  EXPECT_THAT(complaint({large}, {4, 9, 1}), has("a window of 5 over 4"));
  EXPECT_THAT(complaint({{.kind = LayerKind::kResidual, .body = {Conv(3, 3, 1, Activation::kNone, true)}}},
                        {4, 4, 1}),
              has("its shortcut [4, 4, 1]"));
  EXPECT_THAT(complaint({Units(6), {.kind = LayerKind::kEmbedding, .input_dim = 3, .output_dim = 2}}, {4}),
              has("no gradient of numbers"));
  EXPECT_THAT(complaint({{.kind = LayerKind::kDropout, .rate = 1}, Units(3)}, {4}), has("rate"));

  Waves words(backend(), Words());
  words.inputs[8] = 7;
  EXPECT_THROW(words.Loss(), BadData);
}

TEST_P(LayerKindsTest, AreRefusedInBFloat16ByName) {
  const ModelOptions options{.sample = {9, 9, 3}, .max_local_batch = 2, .precision = Precision::kBFloat16};
  try {
    const Model model({.layers = Towers().layers}, options, backend());
    ADD_FAILURE() << "accepted";
  } catch (const Unsupported& refused) {
    EXPECT_THAT(refused.what(),
                ::testing::HasSubstr("Conv2D in BFloat16 on " + std::string(backend().name())));
  }
}

}  // namespace
}  // namespace lockstep::trainer
