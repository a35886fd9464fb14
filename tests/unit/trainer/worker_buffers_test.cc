#include "trainer/worker_buffers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/collectives/gpus.h"
#include "trainer/backend/device_backend.h"
#include "trainer/backend/factory.h"

// A worker's model on a GPU of the plugin, its servers' on a processor.
namespace lockstep::trainer {
namespace {

using ::lockstep::testing::AllGpus;
using ::lockstep::testing::WhyNotSoMany;
using ::testing::FloatNear;
using ::testing::Pointwise;

constexpr int64_t kSamples = 6;

// Both kinds of variables whose elements a backend may order in its own way.
ModelConfig Config() {
  ModelConfig config;
  config.layers.resize(4);
  config.layers[0] = {
      .kind = LayerKind::kConv2D, .activation = Activation::kRelu, .filters = 5, .kernel_size = {3, 3}};
  config.layers[1].kind = LayerKind::kFlatten;
  config.layers[2] = {.units = 7, .activation = Activation::kRelu};
  config.layers[3].units = 3;
  return config;
}

std::vector<float> Random(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(-0.5, 0.5);
  std::vector<float> values(count);
  for (float& each : values) each = value(random);
  return values;
}

class WorkerBuffersTest : public ::testing::Test {
 protected:
  ModelOptions Options(int64_t batch) const { return {.sample = {6, 6, 2}, .max_local_batch = batch}; }

  // The gradients of a step with `parameters`, as they are served, and the loss.
  std::vector<float> Step(Backend& backend, Model& model, const std::vector<float>& parameters,
                          double* loss) {
    WorkerBuffers buffers(model, served_, backend);
    EXPECT_EQ(buffers.parameters().size(), static_cast<size_t>(served_.layout().total));
    const std::vector<float> inputs = Random(kSamples * 72, 2);
    const std::vector<int32_t> labels{0, 1, 2, 0, 1, 2};
    const Buffer own_inputs(backend.allocator(), inputs.size() * sizeof(float));
    const Buffer own_labels(backend.allocator(), labels.size() * sizeof(int32_t));
    backend.Upload(own_inputs.data(), inputs.data(), own_inputs.bytes());
    backend.Upload(own_labels.data(), labels.data(), own_labels.bytes());
    // What came before is not what counts.
    for (const float factor : {2.0f, 1.0f}) {
      std::vector<float> scaled = parameters;
      for (float& each : scaled) each *= factor;
      served_.ImportCanonical(scaled, buffers.parameters().data());
      buffers.ParametersCame();
      *loss = model
                  .TrainStep({.inputs = own_inputs.data(),
                              .labels = own_labels.data(),
                              .n = kSamples,
                              .scale = 1.0f / kSamples},
                             nullptr)
                  .loss_sum;
    }
    const auto gradients = buffers.TakeGradients();
    EXPECT_EQ(gradients.size(), static_cast<size_t>(served_.layout().total));
    return {gradients.begin(), gradients.end()};
  }

  std::unique_ptr<Backend> processor_ = MakeBackend({.threads = 1});
  Model served_{Config(), Options(1), *processor_};
};

TEST_F(WorkerBuffersTest, GradientsOfAGpuAreThoseOfAProcessorInTheServersOrder) {
  if (const std::string why = WhyNotSoMany(1); !why.empty()) GTEST_SKIP() << why;
  const std::vector<float> parameters = Random(static_cast<size_t>(served_.canonical_size()), 1);
  Model here(Config(), Options(kSamples), *processor_);
  double want_loss = 0, loss = 0;
  const std::vector<float> want = Step(*processor_, here, parameters, &want_loss);
  const auto gpu = AllGpus().entry->make_backend({.ordinal = 0});
  Model there(Config(), Options(kSamples), *gpu);
  EXPECT_THAT(Step(*gpu, there, parameters, &loss), Pointwise(FloatNear(1e-5f), want));
  EXPECT_NEAR(loss, want_loss, 1e-5 * want_loss);
  EXPECT_THAT(want, ::testing::Contains(::testing::Gt(0.01f)));
}

}  // namespace
}  // namespace lockstep::trainer
