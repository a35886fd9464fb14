#include "trainer/pipeline_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/in_memory_store.h"
#include "trainer/backend/factory.h"
#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

using ::testing::HasSubstr;

// 64–…: Flatten, then a Dense for each width.
ModelConfig Perceptron(const std::vector<int64_t>& widths) {
  ModelConfig config;
  config.layers.push_back({.kind = LayerKind::kFlatten});
  for (const int64_t width : widths) config.layers.push_back({.units = width});
  return config;
}

struct Ranks {
  explicit Ranks(const std::vector<int64_t>& widths) : model(Perceptron(widths)) {}

  PipelineSetup SetUp(int rank, int ranks, strategy::PipelineOptions asked = {}) {
    return SetUpPipeline({.model = model,
                          .options = whole,
                          .asked = std::move(asked),
                          .rank = rank,
                          .ranks = ranks,
                          .batch_size = 64,
                          .store = &store,
                          .timeout = std::chrono::seconds(10)},
                         *backend);
  }

  ModelConfig model;
  ModelOptions whole{.sample = {8, 8}, .max_local_batch = 64};
  std::unique_ptr<Backend> backend = MakeBackend({.threads = 1});
  lockstep::testing::InMemoryStore store;
};

std::string Written(const std::vector<LayerRange>& stages) {
  std::string text;
  for (const LayerRange& stage : stages) {
    text += std::to_string(stage.first) + "-" + std::to_string(stage.last) + " ";
  }
  return text;
}

TEST(PipelineSetupTest, EveryRankHasWhatRankZeroFound) {
  // Two layers are much larger than all others: each stage has one of them.
  Ranks ranks({1024, 1024, 1024, 10});
  const PipelineSetup first = ranks.SetUp(0, 2), second = ranks.SetUp(1, 2);
  EXPECT_EQ(Written(first.pipeline.stages), "0-2 3-4 ");
  EXPECT_EQ(Written(second.pipeline.stages), Written(first.pipeline.stages));
  EXPECT_EQ(first.options.part->first, 0u);
  EXPECT_EQ(first.options.part->last, 2u);
  EXPECT_EQ(second.options.part->first, 3u);
  EXPECT_EQ(first.pipeline.micro_batches, 8);
  EXPECT_EQ(first.options.max_local_batch, 8);
  EXPECT_EQ(first.options.passes_in_flight, 8);
}

TEST(PipelineSetupTest, SeveralPipelinesDivideTheBatch) {
  Ranks ranks({16, 10});
  strategy::PipelineOptions asked{.stages = {{0, 1}, {2, 2}},
                                  .micro_batches = 4,
                                  .schedule = strategy::PipelineSchedule::kOneForwardOneBackward};
  for (int rank = 0; rank < 4; ++rank) {
    const PipelineSetup setup = ranks.SetUp(rank, 4, asked);
    EXPECT_EQ(setup.options.part->first, rank % 2 == 0 ? 0u : 2u);
    EXPECT_EQ(setup.options.max_local_batch, 8);
    EXPECT_EQ(setup.options.passes_in_flight, rank % 2 == 0 ? 2 : 1);
  }
}

TEST(PipelineSetupTest, OneProcessHasTheWholeModel) {
  Ranks ranks({16, 10});
  const PipelineSetup setup = ranks.SetUp(0, 1);
  EXPECT_FALSE(setup.options.part);
  EXPECT_EQ(setup.options.max_local_batch, 64);
  EXPECT_EQ(setup.options.passes_in_flight, 1);
}

TEST(PipelineSetupTest, RefusesRanksThatMakeNoWholePipelines) {
  Ranks ranks({16, 10});
  try {
    ranks.SetUp(0, 3);
    FAIL();
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(), HasSubstr("3 processes do not make pipelines of 2 stages"));
  }
}

TEST(PipelineSetupTest, SequentialTakesAsFewStagesAsTheMemoryAllows) {
  Ranks ranks({64, 64, 64, 10});  // with their gradients, sums of these and activations about 50 kB each
  const auto set_up = [&](int rank, int64_t memory) {
    return ranks.SetUp(rank, 4, {.map = strategy::DeviceMap::kSequential, .stage_memory = memory});
  };
  EXPECT_EQ(Written(set_up(0, 1 << 20).pipeline.stages), "0-4 ");
  EXPECT_EQ(Written(set_up(0, 140'000).pipeline.stages), "0-2 3-4 ");
  const PipelineSetup last = set_up(3, 140'000);
  EXPECT_EQ(Written(last.pipeline.stages), "0-2 3-4 ") << "as rank 0 has told";
  EXPECT_EQ(last.options.part->first, 3u);
  EXPECT_EQ(last.options.max_local_batch, 4) << "half of 64, in eight";
  EXPECT_THROW(set_up(0, 20'000), BadModel);
}

TEST(PipelineSetupTest, BalancedStagesFitTheMemoryToo) {
  Ranks ranks({64, 64, 64, 10});
  EXPECT_THROW(ranks.SetUp(0, 2, {.stage_memory = 60'000}), BadModel);
}

TEST(MeasureLayersTest, ALargeLayerTakesLongerAndMoreMemory) {
  Ranks ranks({1024, 1024, 16, 10});
  const auto costs = MeasureLayers(ranks.model, ranks.whole, 32, 2, *ranks.backend);
  ASSERT_EQ(costs.size(), 5u);
  EXPECT_EQ(costs[0].seconds, 0) << "it only calls its inputs otherwise";
  EXPECT_FALSE(costs[0].has_variables);
  EXPECT_GT(costs[2].seconds, costs[4].seconds);
  EXPECT_GT(costs[2].bytes, 5 * 4 * 1024 * 1024);
  EXPECT_EQ(costs[2].bytes_in_flight, 32 * 1024 * 4);
}

}  // namespace
}  // namespace lockstep::trainer
