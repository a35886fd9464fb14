#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/launcher_process.h"
#include "tests/support/training_jobs.h"

// `lockstep run` with a model in stages.
namespace lockstep::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// 784–64–64–10 in as many stages as the strategy says.
nlohmann::json Spec(int processes, const nlohmann::json& strategy, const std::string& checkpoints,
                    int epochs) {
  nlohmann::json spec = DigitsSpec({.processes = processes, .epochs = epochs, .checkpoints = checkpoints});
  nlohmann::json& layers = spec["trainer"]["model"]["layers"];
  layers.insert(layers.begin(), layers[0]);
  spec["strategy"] = strategy;
  return spec;
}

const nlohmann::json kAutomatic = {{"type", "Pipeline"}};
const nlohmann::json kByHand = {{"type", "Pipeline"},
                                {"stages", {{{"first", 0}, {"last", 0}}, {{"first", 1}, {"last", 2}}}},
                                {"microBatches", 4},
                                {"schedule", "OneForwardOneBackward"}};

trainer::checkpoint::Snapshot Trained(const nlohmann::json& spec, const std::string& checkpoints) {
  JobRun run(spec);
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  auto snapshot = NewestSnapshot(checkpoints);
  EXPECT_TRUE(snapshot);
  return snapshot ? std::move(*snapshot) : trainer::checkpoint::Snapshot{};
}

void ExpectNear(const trainer::checkpoint::Snapshot& one, const trainer::checkpoint::Snapshot& other) {
  ASSERT_EQ(one.step, other.step);
  ASSERT_EQ(one.signature.variables, other.signature.variables);
  ASSERT_EQ(one.parameters.size(), other.parameters.size());
  for (size_t i = 0; i < one.parameters.size(); ++i) {
    ASSERT_NEAR(one.parameters[i], other.parameters[i], 2e-3) << i;
  }
}

TEST(PipelineTrainingTest, TrainsAsOneProcessDoes) {
  const TemporaryFolder folder;
  const auto one = Trained(Spec(1, {{"type", "OneDevice"}}, folder.File("one"), 3), folder.File("one"));
  ExpectNear(one, Trained(Spec(3, kAutomatic, folder.File("three"), 3), folder.File("three")));
  ExpectNear(one, Trained(Spec(4, kByHand, folder.File("by-hand"), 3), folder.File("by-hand")));
}

TEST(PipelineTrainingTest, ACheckpointGoesOnWithOtherStagesOrAnotherStrategy) {
  const TemporaryFolder folder;
  const auto whole = Trained(Spec(1, {{"type", "OneDevice"}}, folder.File("whole"), 3), folder.File("whole"));
  const std::string checkpoints = folder.File("checkpoints");
  Trained(Spec(2, kByHand, checkpoints, 1), checkpoints);
  JobRun mirrored(Spec(2, {{"type", "Mirrored"}}, checkpoints, 2));
  ASSERT_EQ(mirrored.Wait(), 0) << mirrored.launcher().err();
  EXPECT_THAT(mirrored.Log(0), ContainsRegex("resumed from .*step 16"));
  JobRun pipeline(Spec(3, kAutomatic, checkpoints, 3));
  ASSERT_EQ(pipeline.Wait(), 0) << pipeline.launcher().err();
  EXPECT_THAT(pipeline.Log(0), ContainsRegex("resumed from .*step 32"));
  const auto end = NewestSnapshot(checkpoints);
  ASSERT_TRUE(end);
  ExpectNear(whole, *end);
}

TEST(PipelineTrainingTest, TheStatusSaysWhichLayersARankHas) {
  const JobRun run(Spec(2, kByHand, "", 100'000));
  nlohmann::json ranks;
  ASSERT_TRUE(WaitUntil([&] {
    const nlohmann::json status = run.Status();
    if (!status.is_object()) return false;
    ranks = status["ranks"];
    return ranks.size() == 2 && ranks[0].contains("layers") && ranks[1].contains("layers");
  })) << run.launcher().err();
  EXPECT_EQ(ranks[0]["layers"], "dense");
  EXPECT_EQ(ranks[1]["layers"], "dense_1, dense_2");
}

TEST(PipelineTrainingTest, SaysWhichLayersAreWhere) {
  JobRun by_hand(Spec(4, kByHand, "", 1));
  ASSERT_EQ(by_hand.Wait(), 0) << by_hand.launcher().err();
  EXPECT_THAT(by_hand.Log(0), HasSubstr("stage 0 (rank 0, 2): dense\n"));
  EXPECT_THAT(by_hand.Log(0), HasSubstr("stage 1 (rank 1, 3): dense_1, dense_2\n"));
  JobRun automatic(Spec(2, kAutomatic, "", 1));
  ASSERT_EQ(automatic.Wait(), 0) << automatic.launcher().err();
  EXPECT_THAT(automatic.Log(0), ContainsRegex("stage 0 \\(rank 0\\): dense.*; a micro-batch takes it .* ms"));
}

TEST(PipelineTrainingTest, ADryRunShowsTheDeviceMapThatARunThenHas) {
  const auto map = [](const nlohmann::json& spec) {
    JobRun run(spec, {.arguments = {"--dry-run", "-o", "json"}});
    EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
    nlohmann::json map = nlohmann::json::parse(run.launcher().out(), nullptr, false)["deviceMap"];
    for (auto& stage : map) {
      EXPECT_GT(stage["bytes"], 1000);
      stage.erase("bytes");
      stage.erase("microBatchSeconds");
    }
    return map;
  };
  const nlohmann::json wanted = {{{"stage", 0}, {"ranks", {0, 2}}, {"layers", {"dense"}}},
                                 {{"stage", 1}, {"ranks", {1, 3}}, {"layers", {"dense_1", "dense_2"}}}};
  EXPECT_EQ(map(Spec(4, kByHand, "", 1)), wanted);
  nlohmann::json sequential = {{"type", "Pipeline"}, {"deviceMap", "Sequential"}, {"stageMemory", "1100k"}};
  EXPECT_EQ(map(Spec(4, sequential, "", 1)), wanted);
  JobRun run(Spec(4, sequential, "", 1));
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.Log(0), ContainsRegex("stage 1 \\(rank 1, 3\\): dense_1, dense_2; it has .* MB\n"));

  sequential["stageMemory"] = "500k";
  JobRun none(Spec(4, sequential, "", 1), {.arguments = {"--dry-run"}});
  EXPECT_EQ(none.Wait(), 2);
  EXPECT_THAT(none.launcher().err(), HasSubstr("layer 0, which takes"));
  EXPECT_THAT(none.launcher().out(), HasSubstr("worldSize: 4")) << "the rest is shown";
}

TEST(PipelineTrainingTest, ProcessesThatMakeNoWholePipelinesAreRefused) {
  JobRun run(Spec(4, kAutomatic, "", 1));  // three layers
  EXPECT_NE(run.Wait(), 0);
  EXPECT_THAT(run.launcher().out() + run.launcher().err(),
              HasSubstr("4 processes do not make pipelines of 3 stages"));
}

}  // namespace
}  // namespace lockstep::testing
