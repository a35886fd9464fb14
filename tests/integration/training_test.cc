#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmath>

#include "tests/support/launcher_process.h"
#include "tests/support/training_jobs.h"

// `lockstep run` with Lockstep's own trainer.
namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

TEST(TrainingTest, AnyNumberOfProcessesGivesTheLossesOfOne) {
  std::vector<double> losses;
  for (const int processes : {1, 2, 4}) {
    const TemporaryFolder folder;
    const std::string checkpoints = folder.File("checkpoints");
    // One epoch of 100 steps; a checkpoint at step 99 has the sum over those before.
    JobRun run(DigitsSpec(
        {.processes = processes, .samples = 25600, .epochs = 1, .checkpoints = checkpoints, .every = 99}));
    ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
    losses.push_back(LossUpTo(checkpoints, "0099"));
  }
  ASSERT_TRUE(std::isfinite(losses[0]));
  EXPECT_NEAR(losses[1] / losses[0], 1, 1e-5);
  EXPECT_NEAR(losses[2] / losses[0], 1, 1e-5);
}

TEST(TrainingTest, AShardedJobsCheckpointIsThatOfAWholeOne) {
  std::vector<trainer::checkpoint::Snapshot> results;
  for (const char* shard : {"None", "Optimizer", "Gradients"}) {
    const TemporaryFolder folder;
    nlohmann::json spec = DigitsSpec({.processes = 4, .checkpoints = folder.File("checkpoints")});
    spec["strategy"] = {{"crossDeviceOps", "Gloo"}, {"shard", shard}};
    JobRun run(spec);
    ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
    auto snapshot = NewestSnapshot(folder.File("checkpoints"));
    ASSERT_TRUE(snapshot);
    results.push_back(std::move(*snapshot));
  }
  for (const trainer::checkpoint::Snapshot& sharded : results) {
    EXPECT_EQ(sharded.parameters, results[0].parameters);
    EXPECT_EQ(sharded.slots, results[0].slots);
  }
}

TEST(TrainingTest, TheSameSeedGivesTheSameBits) {
  std::vector<trainer::checkpoint::Snapshot> results;
  for (const int seed : {7, 7, 8}) {
    const TemporaryFolder folder;
    JobRun run(DigitsSpec({.seed = seed, .checkpoints = folder.File("checkpoints")}));
    ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
    auto snapshot = NewestSnapshot(folder.File("checkpoints"));
    ASSERT_TRUE(snapshot);
    results.push_back(std::move(*snapshot));
  }
  EXPECT_EQ(results[0].parameters, results[1].parameters);
  EXPECT_EQ(results[0].slots, results[1].slots);
  EXPECT_NE(results[0].parameters, results[2].parameters);
}

TEST(TrainingTest, TheGuidesRegressionLearnsItsConstant) {
  const TemporaryFolder folder;
  std::string rows;
  for (int i = 0; i < 400; ++i) rows += "1.0,1.0\n";
  const std::string csv = folder.Write("ones.csv", rows);
  const nlohmann::json spec = {
      {"processesPerReplica", 2},
      {"trainer",
       {{"data", {{"format", "CSV"}, {"path", csv}}},
        {"model",
         {{"layers", {{{"type", "Dense"}, {"units", 1}, {"kernelRegularizer", {{"l2", 1e-4}}}}}},
          {"loss", "MeanSquaredError"}}},
        {"optimizer", {{"type", "SGD"}, {"learningRate", 0.1}}},
        {"batchSize", 80},
        {"epochs", 40}}}};
  JobRun run(spec);
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.Log(0), HasSubstr("epoch 40/40: loss 0.000"));
}

TEST(TrainingTest, BFloat16TrainsOrSaysWhyNot) {
  nlohmann::json spec = DigitsSpec({.samples = 16384, .epochs = 6});
  spec["trainer"]["precision"] = "BFloat16";
  JobRun run(spec);
  const int code = run.Wait();
  const bool has_instructions = ReadText("/proc/cpuinfo").find("avx512_bf16") != std::string::npos;
  EXPECT_EQ(code, has_instructions ? 0 : 3) << run.launcher().err();
  if (has_instructions) {
    EXPECT_GT(TestAccuracy(run.Log(0)), 0.8);
  } else {
    EXPECT_THAT(run.launcher().err(), HasSubstr("softPlacement"));
  }
}

TEST(TrainingTest, DataThatIsNotThereIsAPermanentFailureThatNamesIt) {
  nlohmann::json spec = DigitsSpec({});
  spec["trainer"]["data"] = {{"format", "IDX"}, {"path", "/no/such/folder"}};
  JobRun run(spec);
  EXPECT_EQ(run.Wait(), 3);
  EXPECT_THAT(run.launcher().err(), HasSubstr("/no/such/folder"));
}

TEST(TrainingTest, ReportsItsStepsAndItsEnd) {
  JobRun run(DigitsSpec({.samples = 20480, .epochs = 1000}));
  ASSERT_TRUE(WaitUntil([&] {
    const auto status = run.Status();
    return status.is_object() && status.contains("progress") && status["progress"].value("step", 0) > 10;
  })) << run.launcher().err();
  const std::string metrics = run.Get("/metrics");
  for (const char* name :
       {"lockstep_steps_total", "lockstep_samples_total", "lockstep_step_duration_seconds_bucket",
        "lockstep_collective_duration_seconds_bucket", "lockstep_loss", "lockstep_goodput_ratio"}) {
    EXPECT_THAT(metrics, HasSubstr(name));
  }
  EXPECT_EQ(run.Status()["progress"]["totalSteps"], 80000);
  run.launcher().Signal(SIGTERM);
  EXPECT_EQ(run.Wait(), 75) << run.launcher().err();
}

TEST(TrainingTest, GoesOnWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  // A checkpoint has 600 KB.
  if (::mount("lockstep-test", folder.path().c_str(), "tmpfs", 0, "size=900k") != 0) {
    GTEST_SKIP() << "cannot mount a small file system: not root";
  }
  JobRun run(DigitsSpec({.checkpoints = folder.File("checkpoints")}));
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(), HasSubstr("training goes on"));
  const auto kept = NewestSnapshot(folder.File("checkpoints"));
  EXPECT_TRUE(kept.has_value());
  ::umount2(folder.path().c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace lockstep::testing
