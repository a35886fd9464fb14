#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/model/model_fixture.h"
#include "trainer/error.h"

// A model in parts, as the stages of a pipeline have it.
namespace lockstep::trainer {
namespace {

constexpr int64_t kFeatures = 20, kSamples = 16, kOutputs = 10;
constexpr int kMicroBatches = 4;
constexpr int64_t kMicro = kSamples / kMicroBatches;

struct Part : Trained {
  Part(const ModelConfig& config, size_t first, size_t last)
      : Trained(config, {.sample = {kFeatures},
                         .max_local_batch = kMicro,
                         .part = LayerRange{first, last},
                         .passes_in_flight = kMicroBatches}) {}
};

TEST(ModelPartTest, PartsBeginAndTrainAsTheWhole) {
  const ModelConfig config = Perceptron({32, 24, 12, kOutputs});
  Trained whole(config, {.sample = {kFeatures}, .max_local_batch = kSamples});
  Part first(config, 0, 1), last(config, 2, 3);
  EXPECT_FALSE(first.model.wants_input_gradient());
  EXPECT_TRUE(last.model.wants_input_gradient());
  EXPECT_EQ(last.model.features(), 24);

  const auto joined = [&](auto of) {
    std::vector<float> values = first.Canonical(of(first));
    const std::vector<float> rest = last.Canonical(of(last));
    values.insert(values.end(), rest.begin(), rest.end());
    return values;
  };
  const auto parameters = [](Trained& part) { return part.parameters(); };
  EXPECT_EQ(joined(parameters), whole.Canonical(whole.parameters()));

  const Batch batch(kSamples, kFeatures, kOutputs, 1);
  const LossResult wanted = whole.Step(batch);

  // All forward passes, then all backward passes: each needs the activations of its own.
  double loss = 0;
  std::vector<float> gradients(static_cast<size_t>(whole.model.canonical_size()));
  const Pass pass{.n = kMicro, .training = true};
  const void* between[kMicroBatches];
  for (int i = 0; i < kMicroBatches; ++i) {
    between[i] = first.model.Forward(pass, batch.InputsFor(first.model, i * kMicro), i);
    last.model.Forward(pass, between[i], i);
  }
  std::vector<float> dy(kMicro * kOutputs), dx(kMicro * 24);
  for (int i = kMicroBatches; i-- > 0;) {
    const ModelBatch micro{.labels = batch.labels.data() + i * kMicro, .n = kMicro, .scale = 1.0f / kSamples};
    loss += last.model.Loss(micro, dy.data(), i).loss_sum;
    last.model.Backward(pass, between[i], dy.data(), dx.data(), {}, i);
    first.model.Backward(pass, batch.InputsFor(first.model, i * kMicro), dx.data(), nullptr, {}, i);
    const std::vector<float> some = joined([](Trained& part) { return part.gradients(); });
    for (size_t g = 0; g < some.size(); ++g) gradients[g] += some[g];
  }
  EXPECT_NEAR(loss, wanted.loss_sum, 1e-5);
  EXPECT_THAT(gradients, testing::Pointwise(testing::FloatNear(1e-6f), whole.Canonical(whole.gradients())));
}

TEST(ModelPartTest, RefusesLayersThatAreNotThere) {
  const ModelConfig config = Perceptron({32, kOutputs});
  EXPECT_THROW(Part(config, 1, 2), BadModel);
  EXPECT_THROW(Part(config, 1, 0), BadModel);
}

}  // namespace
}  // namespace lockstep::trainer
