#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>

#include "tests/support/launcher_process.h"
#include "tests/support/training_jobs.h"

// Everything that a training can be given besides its rule: schedule, decay, clipping, averages,
// augmentation, pieces.
namespace lockstep::testing {
namespace {

using trainer::checkpoint::Snapshot;

nlohmann::json RecipeSpec(const Digits& digits) {
  nlohmann::json spec = DigitsSpec(digits);
  nlohmann::json& trainer = spec["trainer"];
  trainer["data"]["augmentation"] = {{"crop", {{"height", 26}, {"width", 26}, {"padding", 1}}},
                                     {"brightness", 0.1},
                                     {"contrast", {{"lower", 0.8}, {"upper", 1.2}}},
                                     {"whitening", true}};
  trainer["data"]["validationSamples"] = 500;
  trainer["model"]["labelSmoothing"] = 0.05;
  trainer["model"]["layers"][0]["kernelInitializer"] = "HeNormal";
  trainer["optimizer"] = {{"type", "SGD"},
                          {"learningRate", 0.1},
                          {"momentum", 0.9},
                          {"schedule", {{"type", "Cosine"}, {"warmUpSteps", 10}}},
                          {"weightDecay", 1e-3},
                          {"globalClipNorm", 0.5},
                          {"movingAverage", {{"momentum", 0.95}}}};
  trainer["gradientAccumulation"] = 2;
  return spec;
}

Snapshot Train(const nlohmann::json& spec, const TemporaryFolder& folder) {
  JobRun run(spec);
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  const auto snapshot = NewestSnapshot(folder.File("checkpoints"));
  EXPECT_TRUE(snapshot);
  return snapshot.value_or(Snapshot());
}

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    squares += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(squares / size);
}

// Augmentation is keyed by the sample, the norm is the whole gradient's, pieces add up.
TEST(RecipeTest, AnyNumberOfProcessesGivesTheSameTraining) {
  Snapshot one;
  for (const int processes : {1, 2, 4}) {
    const TemporaryFolder folder;
    const Snapshot snapshot = Train(
        RecipeSpec({.processes = processes, .epochs = 2, .checkpoints = folder.File("checkpoints")}), folder);
    ASSERT_EQ(snapshot.signature.slots, (std::vector<std::string>{"momentum", "average"}));
    if (processes == 1) one = snapshot;
    EXPECT_LT(Distance(snapshot.parameters, one.parameters), 1e-4) << processes;
    EXPECT_LT(Distance(snapshot.slots[1], one.slots[1]), 1e-4) << processes;
  }
  EXPECT_GT(Distance(one.slots[1], one.parameters), 1e-4) << "the average is something else";
}

TEST(RecipeTest, AKilledRankCostsNothingButTime) {
  const auto spec = [](const TemporaryFolder& folder) {
    return RecipeSpec({.processes = 2, .epochs = 12, .checkpoints = folder.File("checkpoints"), .every = 10});
  };
  const TemporaryFolder calm, rough;
  const Snapshot wanted = Train(spec(calm), calm);
  {
    JobRun run(spec(rough));
    ASSERT_TRUE(WaitUntil([&] {
      const auto status = run.Status();
      return run.launcher().HasEnded() ||
             (status.is_object() && status.contains("progress") && status["progress"].value("step", 0) >= 30);
    })) << run.launcher().err();
    const auto status = run.Status();
    if (status.is_object() && status["ranks"].size() == 2) {
      // The average of the loss is told.
      EXPECT_TRUE(status["progress"].contains("lossAverage"));
      if (const int pid = status["ranks"][1].value("pid", 0); pid > 0) ::kill(pid, SIGKILL);
    }
    ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  }
  const auto snapshot = NewestSnapshot(rough.File("checkpoints"));
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(snapshot->step, wanted.step);
  EXPECT_EQ(snapshot->parameters, wanted.parameters);
  EXPECT_EQ(snapshot->slots, wanted.slots);
  EXPECT_EQ(snapshot->metadata, wanted.metadata) << "the averaged loss goes on too";
}

TEST(RecipeTest, WhatDoesNotFitTheImagesIsSaid) {
  nlohmann::json spec = RecipeSpec({.processes = 1});
  spec["trainer"]["data"]["augmentation"]["crop"] = {{"height", 40}, {"width", 40}};
  JobRun run(spec);
  EXPECT_EQ(run.Wait(), 3);
  EXPECT_THAT(run.launcher().err(), ::testing::HasSubstr("40 × 40 out of images of 28 × 28"));
}

}  // namespace
}  // namespace lockstep::testing
