#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "common/contract/exit_codes.h"
#include "tests/support/played_launcher.h"
#include "tests/support/training_jobs.h"
#include "trainer/checkpoint/ledger.h"

// Processes that live on while others of their job are killed.
namespace lockstep::testing {
namespace {

using trainer::checkpoint::Snapshot;

constexpr int kSamples = 4096;

struct Case {
  std::string name;
  int machines = 1;
  int local_size = 1;
  nlohmann::json strategy;
  int64_t repeated = 0;  // steps that a kill may cost
  nlohmann::json optimizer = {{"type", "Adam"}, {"learningRate", 0.001}};
  int epochs = 80;
  bool normalised = false;  // with batch normalization of each micro-batch
};

std::vector<Case> Cases() {
  const nlohmann::json clipped = {{"type", "Adam"},
                                  {"learningRate", 0.001},
                                  {"globalClipNorm", 0.5},
                                  {"movingAverage", {{"momentum", 0.9}}}};
  const auto pipeline = [](int first_of_second, int last, const char* schedule) -> nlohmann::json {
    return {{"type", "Pipeline"},
            {"stages",
             {{{"first", 0}, {"last", first_of_second - 1}}, {{"first", first_of_second}, {"last", last}}}},
            {"microBatches", 4},
            {"schedule", schedule}};
  };
  return {
      {"Mirrored2", 1, 2, {{"type", "Mirrored"}}},
      {"Mirrored4", 1, 4, {{"type", "Mirrored"}}},
      {"MirroredClipped3", 1, 3, {{"type", "Mirrored"}}, 0, clipped},
      {"CentralStorage2", 1, 2, {{"type", "CentralStorage"}}},
      {"HierarchicalCopyClipped3",
       1,
       3,
       {{"type", "Mirrored"}, {"crossDeviceOps", "HierarchicalCopy"}},
       0,
       clipped},
      {"Gloo2", 1, 2, {{"type", "Mirrored"}, {"crossDeviceOps", "Gloo"}}, 1},
      {"ShardedOptimizer3",
       1,
       3,
       {{"type", "Mirrored"}, {"crossDeviceOps", "Gloo"}, {"shard", "Optimizer"}},
       1},
      {"ShardedGradientsClipped3", 1, 3, {{"type", "Mirrored"}, {"shard", "Gradients"}}, 1, clipped},
      {"ShardedTwoMachinesOfTwo", 2, 2, {{"type", "MultiWorkerMirrored"}, {"shard", "Gradients"}}, 1},
      {"TwoMachinesOfTwo", 2, 2, {{"type", "MultiWorkerMirrored"}}, 1},
      {"TwoMachinesOfTwoClipped", 2, 2, {{"type", "MultiWorkerMirrored"}}, 1, clipped},
      {"Pipeline2", 1, 2, pipeline(1, 1, "GPipe")},
      {"TwoPipelinesOfTwoClipped", 1, 4, pipeline(1, 1, "OneForwardOneBackward"), 0, clipped},
      {.name = "PipelineNormalised2",
       .local_size = 2,
       .strategy = pipeline(2, 2, "OneForwardOneBackward"),
       .normalised = true},
  };
}

// 784-128-10 with a validation after each epoch, and a checkpoint at the very end.
nlohmann::json Spec(const Case& param, int epochs, const std::string& folder) {
  nlohmann::json spec = DigitsSpec({.processes = param.local_size,
                                    .samples = kSamples,
                                    .epochs = epochs,
                                    .checkpoints = folder,
                                    .every = 1000000});
  spec["replicas"] = param.machines;
  spec["strategy"] = param.strategy;
  spec["trainer"]["optimizer"] = param.optimizer;
  spec["trainer"]["batchSize"] = 240;
  spec["trainer"]["model"]["layers"][0]["units"] = 128;
  spec["trainer"]["data"]["validationSamples"] = 256;
  if (param.normalised) {
    nlohmann::json& layers = spec["trainer"]["model"]["layers"];
    layers.insert(layers.begin() + 1, nlohmann::json{{"type", "BatchNormalization"}});
  }
  return spec;
}

constexpr int kTrained = kSamples - 256;

class SurvivorsTest : public ::testing::TestWithParam<Case> {};

TEST_P(SurvivorsTest, TwentyKillsLoseNothingAndChangeNoBit) {
  const Case& param = GetParam();
  const TemporaryFolder folder;
  const nlohmann::json undisturbed = Spec(param, param.epochs, folder.File("undisturbed"));
  Snapshot wanted;
  {
    PlayedLauncher launcher(
        {.spec = undisturbed, .machines = param.machines, .local_size = param.local_size});
    for (int r = 0; r < launcher.size(); ++r) ASSERT_EQ(launcher.Wait(r), 0) << launcher.Log(r);
    wanted = NewestSnapshot(folder.File("undisturbed")).value();
  }

  PlayedLauncher launcher({.spec = Spec(param, param.epochs, folder.File("checkpoints")),
                           .machines = param.machines,
                           .local_size = param.local_size,
                           .ledger = folder.File("ledger")});
  std::mt19937 random(7);
  int64_t reached = 0;
  for (int kill = 0; kill < 20; ++kill) {
    ASSERT_TRUE(launcher.Until([&] {
      for (int r = 0; r < launcher.size(); ++r) {
        if (!launcher.at(r).regroups) return false;
      }
      return launcher.at(0).step > reached;
    })) << launcher.Log(0);
    // Any instant of the steps to come.
    const auto moment = std::chrono::steady_clock::now() +
                        std::chrono::microseconds(std::uniform_int_distribution(0, 20000)(random));
    while (std::chrono::steady_clock::now() < moment) {
    }
    const int victim = std::uniform_int_distribution(0, launcher.size() - 1)(random);
    launcher.Kill(victim);
    ASSERT_TRUE(launcher.Gather(/*told=*/kill % 2 == 0)) << "kill " << kill << ":\n"
                                                         << launcher.Log(0) << launcher.Log(1);
    int64_t held = 0;
    for (int r = 0; r < launcher.size(); ++r) {
      if (r != victim) held = std::max(held, launcher.at(r).holds.value());
    }
    EXPECT_GE(held, reached);
    reached = held;
    launcher.Next(param.machines);
    ASSERT_TRUE(launcher.Until([&] {
      for (int r = 0; r < launcher.size(); ++r) {
        if (!launcher.at(r).resumed) return false;
      }
      return true;
    })) << launcher.Log(0);
    // (With its share alone a process may not know yet whether all come to the end of the step after it.)
    const bool divided = param.strategy.contains("shard");
    if (divided && launcher.at(0).resumed == held + 1) reached = held + 1;
    for (int r = 0; r < launcher.size(); ++r) EXPECT_EQ(launcher.at(r).resumed, reached) << r;
  }
  for (int r = 0; r < launcher.size(); ++r) ASSERT_EQ(launcher.Wait(r), 0) << launcher.Log(r);

  const auto snapshot = NewestSnapshot(folder.File("checkpoints"));
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(snapshot->step, wanted.step);
  EXPECT_EQ(snapshot->parameters, wanted.parameters);
  EXPECT_EQ(snapshot->slots, wanted.slots);
  EXPECT_EQ(snapshot->state, wanted.state);
  EXPECT_EQ(snapshot->metadata, wanted.metadata);
  const auto ledger = trainer::checkpoint::ReadLedger(folder.File("ledger"));
  ASSERT_TRUE(ledger.ok()) << ledger.status().ToString();
  const auto summary = trainer::checkpoint::CommittedOnce(*ledger, kTrained, param.epochs);
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_LE(summary->repeated, 20 * param.repeated);
}

INSTANTIATE_TEST_SUITE_P(Ways, SurvivorsTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// Of a long training, of which one is killed: the rest waits.
class ParkedTest : public ::testing::Test {
 protected:
  ParkedTest()
      : launcher_(
            {.spec = Spec({.machines = 2, .local_size = 1, .strategy = {{"type", "MultiWorkerMirrored"}}},
                          100000, folder_.File("checkpoints")),
             .machines = 2,
             .local_size = 1,
             .ledger = folder_.File("ledger")}) {}

  ::testing::AssertionResult Train(int64_t steps) {
    const bool trained = launcher_.Until([&] {
      for (int r = 0; r < launcher_.size(); ++r) {
        if (!launcher_.at(r).regroups || launcher_.at(r).step < steps) return false;
      }
      return true;
    });
    return trained ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << launcher_.Log(0);
  }
  ::testing::AssertionResult Park() {
    if (auto trained = Train(20); !trained) return trained;
    launcher_.Kill(1);
    return launcher_.Gather(/*told=*/true);
  }

  TemporaryFolder folder_;
  PlayedLauncher launcher_;
};

TEST_F(ParkedTest, WhoIsAskedToStopEnds) {
  ASSERT_TRUE(Park());
  ::kill(launcher_.at(0).pid, SIGTERM);
  EXPECT_EQ(launcher_.Wait(0), contract::kExitCheckpointed);
}

TEST_F(ParkedTest, WhoHasNoLauncherAnyMoreEnds) {
  ASSERT_TRUE(Park());
  launcher_.at(0).control.reset();
  EXPECT_EQ(launcher_.Wait(0), contract::kExitCollectiveLost);
}

TEST_F(ParkedTest, WhoIsToldTwiceAnswersOnce) {
  ASSERT_TRUE(Park());
  launcher_.Tell(0, "{\"control\":\"regroup\"}\n");
  launcher_.Next(2);
  ASSERT_TRUE(launcher_.Until([&] { return launcher_.at(0).resumed.has_value(); })) << launcher_.Log(0);
  EXPECT_EQ(launcher_.at(0).answers, 1);
  EXPECT_TRUE(Train(launcher_.at(0).step + 20));
}

// One machine is lost, and comes back later.
TEST_F(ParkedTest, TheNextGenerationMayHaveAnotherSize) {
  for (const int machines : {1, 2}) {
    ASSERT_TRUE(Train(launcher_.at(0).step + 20));
    if (launcher_.size() == 2) launcher_.Kill(1);
    ASSERT_TRUE(launcher_.Gather(/*told=*/true));
    const int64_t held = launcher_.at(0).holds.value();
    launcher_.Next(machines);
    ASSERT_TRUE(launcher_.Until([&] { return launcher_.at(machines - 1).resumed.has_value(); }));
    EXPECT_EQ(launcher_.at(machines - 1).resumed, held);
  }
  ASSERT_TRUE(Train(launcher_.at(0).step + 20));
  launcher_.Kill(1);
  launcher_.Kill(0);
  const auto ledger = trainer::checkpoint::ReadLedger(folder_.File("ledger"));
  ASSERT_TRUE(ledger.ok()) << ledger.status().ToString();
  int64_t step = 0, offset = 0;  // nothing is left out and nothing comes twice
  for (const auto& record : *ledger) {
    if (record.count == 0) {
      EXPECT_EQ(record.step, step);
      continue;
    }
    EXPECT_EQ(record.step, ++step);
    EXPECT_EQ(record.first, offset);
    offset = (record.first + record.count) % kTrained;
  }
}

TEST_F(ParkedTest, AHundredGenerationsLeaveNothingBehind) {
  const auto count = [&](const char* what) {
    const std::string path = "/proc/" + std::to_string(launcher_.at(0).pid) + "/" + what;
    return std::distance(std::filesystem::directory_iterator(path), std::filesystem::directory_iterator());
  };
  const auto resident = [&] {
    std::ifstream statm("/proc/" + std::to_string(launcher_.at(0).pid) + "/statm");
    int64_t pages = 0, held = 0;
    statm >> pages >> held;
    return held * 4096;
  };
  std::ptrdiff_t files = 0, threads = 0;
  int64_t bytes = 0;
  for (int generation = 0; generation < 100; ++generation) {
    ASSERT_TRUE(launcher_.Until([&] {
      return launcher_.at(0).regroups && launcher_.at(1).regroups &&
             (generation == 0 || (launcher_.at(0).resumed && launcher_.at(1).resumed));
    })) << generation
        << launcher_.Log(0);
    if (generation == 20) {
      files = count("fd");
      threads = count("task");
      bytes = resident();
    }
    if (generation == 99) break;
    // Nobody is killed: the same two go on.
    ASSERT_TRUE(launcher_.Gather(/*told=*/true)) << generation << launcher_.Log(0);
    launcher_.Next(2);
  }
  ASSERT_TRUE(Train(launcher_.at(0).step + 1));
  EXPECT_LE(count("fd"), files + 2);
  EXPECT_LE(count("task"), threads + 1);
  EXPECT_LT(resident(), bytes + (8 << 20));
}

}  // namespace
}  // namespace lockstep::testing
