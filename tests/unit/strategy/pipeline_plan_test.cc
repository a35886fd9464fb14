#include "trainer/strategy/pipeline_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "trainer/error.h"

namespace lockstep::trainer::strategy {
namespace {

using ::testing::HasSubstr;
using enum PipelineSchedule;

// "F0 F1 B0 F2 B1 B2".
std::string Written(const std::vector<PipelineWork>& schedule) {
  std::string text;
  for (const PipelineWork& work : schedule) {
    text += text.empty() ? "" : " ";
    text += (work.kind == PipelineWork::Kind::kForward ? "F" : "B") + std::to_string(work.micro_batch);
  }
  return text;
}

TEST(PipelineScheduleTest, GPipeKeepsAllActivations) {
  for (int stage = 0; stage < 3; ++stage) {
    EXPECT_EQ(Written(MakeSchedule(kGPipe, stage, 3, 4)), "F0 F1 F2 F3 B0 B1 B2 B3") << stage;
    EXPECT_EQ(PassesInFlight(kGPipe, stage, 3, 4), 4);
  }
}

TEST(PipelineScheduleTest, OneForwardOneBackwardTakesTurnsOnceThePipelineIsFull) {
  EXPECT_EQ(Written(MakeSchedule(kOneForwardOneBackward, 0, 3, 5)), "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4");
  EXPECT_EQ(Written(MakeSchedule(kOneForwardOneBackward, 1, 3, 5)), "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4");
  EXPECT_EQ(Written(MakeSchedule(kOneForwardOneBackward, 2, 3, 5)), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
  EXPECT_EQ(Written(MakeSchedule(kOneForwardOneBackward, 0, 4, 2)), "F0 F1 B0 B1") << "fewer than stages";
  EXPECT_EQ(Written(MakeSchedule(kOneForwardOneBackward, 0, 1, 0)), "");
}

// Whatever the schedule, micro-batches come in order, a backward pass after its forward pass, and no more are
// in flight than memory is made for.
TEST(PipelineScheduleTest, KeepsNoMoreThanIsSaidInFlight) {
  for (const PipelineSchedule schedule : {kGPipe, kOneForwardOneBackward}) {
    for (int stages = 1; stages <= 5; ++stages) {
      for (int micro_batches = 1; micro_batches <= 12; ++micro_batches) {
        for (int stage = 0; stage < stages; ++stage) {
          const int most = PassesInFlight(schedule, stage, stages, micro_batches);
          if (schedule == kOneForwardOneBackward) {
            EXPECT_LE(most, stages - stage);
          }
          int forward = 0, backward = 0, reached = 0;
          for (const PipelineWork& work : MakeSchedule(schedule, stage, stages, micro_batches)) {
            int& next = work.kind == PipelineWork::Kind::kForward ? forward : backward;
            EXPECT_EQ(work.micro_batch, next++);
            EXPECT_LE(backward, forward);
            reached = std::max(reached, forward - backward);
          }
          EXPECT_EQ(forward, micro_batches);
          EXPECT_EQ(backward, micro_batches);
          EXPECT_EQ(reached, most) << "stage " << stage << " of " << stages << ", " << micro_batches;
        }
      }
    }
  }
}

TEST(PipelinePlaceTest, TheRanksOfAPipelineAreConsecutive) {
  for (int rank = 0; rank < 6; ++rank) {
    const PipelinePlace place = PlaceInPipeline(rank, 6, 3);
    EXPECT_EQ(place.stage, rank % 3);
    EXPECT_EQ(place.pipeline, rank / 3);
    EXPECT_EQ(place.pipelines, 2);
  }
  try {
    PlaceInPipeline(0, 5, 2);
    FAIL();
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(), HasSubstr("5 processes do not make pipelines of 2 stages"));
  }
}

TEST(PipelinePlaceTest, ThereAreAsManyStagesAsRanksOrLayers) {
  EXPECT_EQ(AutomaticStages(4, 9), 4);
  EXPECT_EQ(AutomaticStages(4, 2), 2);
  EXPECT_EQ(AutomaticStages(1, 3), 1);
}

std::string Written(const std::vector<LayerRange>& stages) {
  std::string text;
  for (const LayerRange& stage : stages) {
    text += (text.empty() ? "" : " ") + std::to_string(stage.first) + "-" + std::to_string(stage.last);
  }
  return text;
}
std::vector<LayerCost> Seconds(const std::vector<double>& seconds) {
  std::vector<LayerCost> layers;
  for (const double each : seconds) layers.push_back({.seconds = each});
  return layers;
}
std::string Cut(const std::vector<LayerCost>& layers, const BalanceOptions& options) {
  return Written(BalanceStages(layers, options));
}

TEST(BalanceStagesTest, TheSlowestStageIsTheFastestPossible) {
  EXPECT_EQ(Cut(Seconds({1, 1, 1, 1}), {.stages = 2}), "0-1 2-3");
  EXPECT_EQ(Cut(Seconds({5, 1, 1, 1}), {.stages = 2}), "0-0 1-3");
  EXPECT_EQ(Cut(Seconds({1, 2, 3, 4, 5}), {.stages = 2}), "0-2 3-4");
  EXPECT_EQ(Cut(Seconds({1, 2, 3, 4, 5}), {.stages = 3}), "0-2 3-3 4-4");
  EXPECT_EQ(Cut(Seconds({9, 1, 1, 9}), {.stages = 3}), "0-0 1-2 3-3");
  EXPECT_EQ(Cut(Seconds({3, 3}), {.stages = 2}), "0-0 1-1");
  EXPECT_EQ(Cut(Seconds({3, 3, 2}), {.stages = 1}), "0-2");
  EXPECT_EQ(Cut(Seconds({0, 0, 0}), {.stages = 2}), "0-0 1-2") << "of equals the shortest first";
}

TEST(BalanceStagesTest, EveryStageHasVariables) {
  std::vector<LayerCost> layers = Seconds({0, 4, 0, 1});
  layers[0].has_variables = layers[2].has_variables = false;
  EXPECT_EQ(Cut(layers, {.stages = 2}), "0-1 2-3");
  EXPECT_THROW(BalanceStages(layers, {.stages = 3}), BadModel);
}

TEST(BalanceStagesTest, StagesFitTheMemory) {
  std::vector<LayerCost> layers = Seconds({1, 1, 1, 1});
  for (LayerCost& layer : layers) layer.bytes = 10;
  layers[0].bytes = 100;
  EXPECT_EQ(Cut(layers, {.stages = 2, .memory = 110}), "0-1 2-3");
  EXPECT_EQ(Cut(layers, {.stages = 2, .memory = 105}), "0-0 1-3");
  EXPECT_THROW(BalanceStages(layers, {.stages = 2, .memory = 99}), BadModel);
  // Activations count once for each pass in flight: GPipe keeps four, the other schedule two and one.
  for (LayerCost& layer : layers) layer = {.seconds = 1, .bytes_in_flight = 10};
  layers[1].seconds = 2;
  EXPECT_EQ(Cut(layers, {.stages = 2, .micro_batches = 4, .memory = 80}), "0-1 2-3");
  EXPECT_THROW(BalanceStages(layers, {.stages = 2, .micro_batches = 4, .memory = 79}), BadModel);
  EXPECT_EQ(Cut(layers, {.stages = 2, .micro_batches = 4, .schedule = kOneForwardOneBackward, .memory = 30}),
            "0-0 1-3");
}

std::string Filled(const std::vector<LayerCost>& layers, const BalanceOptions& options) {
  return Written(FillStages(layers, options));
}

TEST(FillStagesTest, EachHasAsManyLayersAsItsMemoryHolds) {
  std::vector<LayerCost> layers(5);
  for (LayerCost& layer : layers) layer.bytes = 10;
  EXPECT_EQ(Filled(layers, {.stages = 2, .memory = 30}), "0-2 3-4");
  EXPECT_EQ(Filled(layers, {.stages = 2, .memory = 39}), "0-2 3-4");
  EXPECT_EQ(Filled(layers, {.stages = 3, .memory = 20}), "0-1 2-3 4-4");
  EXPECT_EQ(Filled(layers, {.stages = 1, .memory = 50}), "0-4");
  // More than it takes: a layer for each that comes after.
  EXPECT_EQ(Filled(layers, {.stages = 3, .memory = 50}), "0-2 3-3 4-4");
  EXPECT_EQ(Filled(layers, {.stages = 5, .memory = 50}), "0-0 1-1 2-2 3-3 4-4");
  // Activations count once for each pass in flight.
  for (LayerCost& layer : layers) layer = {.bytes_in_flight = 10};
  EXPECT_EQ(Filled(layers, {.stages = 2, .micro_batches = 4, .memory = 120}), "0-2 3-4");
  EXPECT_EQ(
      Filled(layers, {.stages = 2, .micro_batches = 4, .schedule = kOneForwardOneBackward, .memory = 40}),
      "0-1 2-4");
}

TEST(FillStagesTest, LayersWithoutVariablesMakeNoStage) {
  std::vector<LayerCost> layers(5);
  for (LayerCost& layer : layers) layer.bytes = 10;
  layers[0].has_variables = layers[3].has_variables = layers[4].has_variables = false;
  EXPECT_EQ(Filled(layers, {.stages = 2, .memory = 50}), "0-1 2-4");
  EXPECT_THROW(FillStages(layers, {.stages = 3, .memory = 50}), BadModel);
  EXPECT_THROW(FillStages(layers, {.stages = 2, .memory = 20}), BadModel) << "0-1 2-3, and 4 alone";
}

TEST(FillStagesTest, SaysWhichLayerDoesNotFit) {
  std::vector<LayerCost> layers(3);
  for (LayerCost& layer : layers) layer.bytes = 10;
  layers[1].bytes = 70;
  try {
    FillStages(layers, {.stages = 2, .memory = 69});
    FAIL();
  } catch (const BadModel& error) {
    EXPECT_STREQ(error.what(),
                 "strategy: 3 layers cannot be cut into 2 stages, each with variables and within 69 bytes of "
                 "memory: layer 1, which takes 70, does not fit");
  }
}

}  // namespace
}  // namespace lockstep::trainer::strategy
