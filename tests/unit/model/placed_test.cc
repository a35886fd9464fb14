#include <gtest/gtest.h>

#include "tests/unit/model/model_fixture.h"
#include "trainer/error.h"

// Layers on another device than their model.
namespace lockstep::trainer {
namespace {

const ModelOptions kOptions{.sample = {20}, .max_local_batch = 16};

TEST(PlacedLayerTest, TrainsAsIfItWereAtHome) {
  const auto other = MakeBackend({.threads = 1});
  std::vector<std::string> asked;
  ModelOptions placed_options = kOptions;
  Backend* home = nullptr;
  placed_options.place = [&](const LayerConfig& layer) -> Backend& {
    asked.push_back(layer.name);
    return layer.name == "dense_1" || layer.name == "dense_2" ? *other : *home;
  };
  const ModelConfig config = Perceptron({32, 24, 10}, 1e-3);
  Trained plain(config, kOptions);
  home = plain.backend.get();
  Model placed(config, placed_options, *home);
  EXPECT_EQ(asked, (std::vector<std::string>{"dense", "dense_1", "dense_2"}));
  EXPECT_FALSE(placed.recordable());
  EXPECT_TRUE(plain.model.recordable());
  ASSERT_EQ(placed.layout().total, plain.model.layout().total);

  const size_t bytes = static_cast<size_t>(placed.layout().total) * sizeof(float);
  const Buffer parameters = ZeroedHostBuffer(bytes), gradients = ZeroedHostBuffer(bytes),
               m = ZeroedHostBuffer(bytes), v = ZeroedHostBuffer(bytes);
  placed.Bind(parameters.span<float>(), gradients.span<float>());
  placed.Initialize(7);
  const auto optimizer = MakeOptimizer({.kind = OptimizerKind::kAdam}, *home);
  for (int step = 1; step <= 5; ++step) {
    const Batch batch(step == 3 ? 7 : 16, 20, 10, static_cast<uint32_t>(step));
    const LossResult expected = plain.Step(batch);
    plain.Update(*optimizer, step);
    const LossResult result = placed.TrainStep({.inputs = batch.InputsFor(placed),
                                                .labels = batch.LabelsFor(placed),
                                                .n = batch.n,
                                                .scale = 1.0f / static_cast<float>(batch.n)},
                                               {});
    optimizer->Update(step, {parameters.as<float>(), gradients.as<float>(), {m.as<float>(), v.as<float>()}},
                      0, placed.layout().total, placed.layout().update_ranges());
    placed.ParametersChanged(0, placed.layout().total);
    ASSERT_EQ(result.loss_sum, expected.loss_sum) << step;
    ASSERT_EQ(result.correct, expected.correct) << step;
  }
  for (size_t i = 0; i < parameters.span<float>().size(); ++i) {
    ASSERT_EQ(parameters.as<float>()[i], plain.parameters()[i]) << i;
  }
}

}  // namespace
}  // namespace lockstep::trainer
