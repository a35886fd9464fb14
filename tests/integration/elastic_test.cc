#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "common/contract/exit_codes.h"
#include "tests/support/free_port.h"
#include "tests/support/launcher_process.h"
#include "tests/support/training_jobs.h"
#include "trainer/checkpoint/ledger.h"

// A job whose replicas go and come, and runs of a job that meet over one folder of checkpoints.
namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using trainer::checkpoint::LedgerRecord;

constexpr int kReplicas = 3;
constexpr int kSamples = 1100;       // the last batch of an epoch is smaller
constexpr int kBatch = 255;          // of three ranks 85 each; of two 128 and 127
constexpr int kEndless = 1'000'000;  // epochs

bool Says(const JobRun& run, const std::string& text) {
  return WaitUntil([&] { return run.launcher().err().find(text) != std::string::npos; });
}

class ElasticTest : public ::testing::Test {
 protected:
  nlohmann::json Spec() const {
    nlohmann::json spec = DigitsSpec({.processes = 1,
                                      .samples = kSamples,
                                      .epochs = kEndless,
                                      .checkpoints = folder_.File("checkpoints"),
                                      .every = 10});
    spec["trainer"]["batchSize"] = kBatch;
    spec["replicas"] = kReplicas;
    spec["runPolicy"] = {{"minReplicas", 2}};
    spec["strategy"] = {{"scaling", scaling_}};
    return spec;
  }

  // The same job on one replica, until so many epochs are done.
  nlohmann::json SpecAlone(int64_t epochs, const std::string& checkpoints) const {
    nlohmann::json spec = Spec();
    spec["replicas"] = 1;
    spec["runPolicy"] = nlohmann::json::object();
    spec["trainer"]["epochs"] = epochs;
    spec["trainer"]["checkpoint"]["directory"] = checkpoints;
    return spec;
  }

  std::unique_ptr<JobRun> Start(int replica) const {
    return std::make_unique<JobRun>(
        Spec(),
        JobRun::Options{.arguments = {"--replica", std::to_string(replica), "--rendezvous",
                                      "127.0.0.1:" + std::to_string(port_), "--token-file",
                                      folder_.File("token"), "--elastic-wait", "1", "--grow-interval", "1"},
                        .environment = {{"TRAINING_LEDGER", folder_.File("ledger")}}});
  }
  std::array<std::unique_ptr<JobRun>, kReplicas> StartAll() const {
    std::array<std::unique_ptr<JobRun>, kReplicas> all;
    all[0] = Start(0);
    EXPECT_TRUE(WaitUntil([&] { return !ReadText(folder_.File("token")).empty(); }));
    for (int i = 1; i < kReplicas; ++i) all[i] = Start(i);
    return all;
  }
  bool WaitForCheckpoint() const {
    return WaitUntil([&] { return NewestSnapshot(folder_.File("checkpoints")).has_value(); });
  }
  std::vector<LedgerRecord> Ledger() const {
    auto ledger = trainer::checkpoint::ReadLedger(folder_.File("ledger"));
    EXPECT_TRUE(ledger.ok()) << ledger.status().ToString();
    return ledger.ok() ? *ledger : std::vector<LedgerRecord>();
  }

  std::string scaling_ = "KeepGlobalBatch";
  TemporaryFolder folder_;
  int port_ = FreePort();
};

// The loss in "test: loss 0.1234, …".
double TestLoss(const std::string& log) {
  std::smatch match;
  return std::regex_search(log, match, std::regex("test: loss ([0-9.]+)")) ? std::stod(match[1]) : -1;
}

// How many steps were done when this generation began, less those it resumed from: work that is done twice.
int64_t RepeatedBy(const std::vector<LedgerRecord>& ledger, int64_t generation) {
  int64_t done = 0;
  for (const LedgerRecord& record : ledger) {
    if (record.count == 0 && record.generation == generation) return done - record.step;
    done = record.step;
  }
  ADD_FAILURE() << "no generation " << generation;
  return -1;
}

TEST_F(ElasticTest, GoesOnSmallerAndGrowsAgainWithoutLosingOrRepeatingASample) {
  auto all = StartAll();
  ASSERT_TRUE(WaitForCheckpoint()) << all[0]->launcher().err() << all[1]->launcher().err();
  all[1]->launcher().Signal(SIGKILL);
  all[1]->Wait();
  ASSERT_TRUE(Says(*all[0], "generation 1 starts without replica 1: 2 of 3 replicas, 2 processes"))
      << all[0]->launcher().err();
  // Contiguous all the same.
  ASSERT_TRUE(WaitUntil([&] { return all[2]->Status().value("worldSize", 0) == 2; }));
  ASSERT_TRUE(WaitUntil([&] {
    const auto ranks = all[2]->Status()["ranks"];
    return ranks.size() == 1 && ranks[0]["rank"] == 1 && ranks[0]["replica"] == 2;
  })) << all[2]->Status();
  EXPECT_EQ(all[0]->Status()["replicas"], (nlohmann::json{{"desired", 3}, {"running", 2}, {"leftOut", {1}}}));

  all[1] = Start(1);
  ASSERT_TRUE(Says(*all[0], "replica 1 is here: the job goes on with 3 replicas instead of 2"))
      << all[0]->launcher().err();
  ASSERT_EQ(all[1]->Pids(2).size(), 1u) << all[0]->launcher().err();
  ASSERT_TRUE(WaitUntil([&] {
    const auto now = all[0]->Status();
    return now["generation"] == 2 && now["ready"] == true;
  })) << all[0]->launcher().err();
  const auto status = all[0]->Status();
  EXPECT_EQ(status["worldSize"], 3);
  EXPECT_EQ(status["restarts"], 1) << "the loss; growth is none";
  EXPECT_EQ(status["lastFailure"]["reason"], "ReplicaLost");
  EXPECT_TRUE(std::regex_search(all[0]->Get("/metrics"),
                                std::regex("lockstep_restarts_total\\{[^}]*reason=\"Resized\"[^}]*\\} 1")))
      << all[0]->Get("/metrics");

  // To the end of the epoch at hand, so that however fast this machine is the whole can be compared.
  all[0]->launcher().Signal(SIGTERM);
  for (auto& run : all) EXPECT_EQ(run->Wait(), contract::kExitCheckpointed) << run->launcher().err();
  const auto stopped = NewestSnapshot(folder_.File("checkpoints"));
  ASSERT_TRUE(stopped);
  const int64_t epochs = stopped->epoch + 1;
  JobRun rest(SpecAlone(epochs, folder_.File("checkpoints")),
              {.environment = {{"TRAINING_LEDGER", folder_.File("ledger")}}});
  ASSERT_EQ(rest.Wait(), 0) << rest.launcher().err();

  const auto ledger = Ledger();
  const auto summary = trainer::checkpoint::CommittedOnce(ledger, kSamples, epochs);
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_EQ(summary->generations, 4);
  EXPECT_LE(RepeatedBy(ledger, 1), 1) << "the others kept what they had";
  EXPECT_EQ(RepeatedBy(ledger, 2), 0) << "what was done before it grew was saved";

  const TemporaryFolder alone;
  JobRun undisturbed(SpecAlone(epochs, alone.File("checkpoints")));
  ASSERT_EQ(undisturbed.Wait(InTime(std::chrono::seconds(150))), 0) << undisturbed.launcher().err();
  EXPECT_EQ(NewestSnapshot(folder_.File("checkpoints"))->step,
            NewestSnapshot(alone.File("checkpoints"))->step);
  EXPECT_NEAR(TestLoss(rest.Log(0)), TestLoss(undisturbed.Log(0)), 0.01);
  // Of 1,000 samples, of which sums in another order decide some otherwise while the model learns quickly.
  EXPECT_NEAR(TestAccuracy(rest.Log(0)), TestAccuracy(undisturbed.Log(0)), 0.02);
}

TEST_F(ElasticTest, AReplicaThatIsAskedToStopTakesNoWorkWithIt) {
  auto all = StartAll();
  ASSERT_TRUE(WaitForCheckpoint()) << all[0]->launcher().err() << all[1]->launcher().err();
  all[2]->launcher().Signal(SIGTERM);
  EXPECT_EQ(all[2]->Wait(), contract::kExitCheckpointed) << all[2]->launcher().err();
  ASSERT_TRUE(Says(*all[0], "generation 1 starts without replica 2")) << all[0]->launcher().err();
  ASSERT_EQ(all[0]->Pids(1).size(), 1u);
  ASSERT_TRUE(WaitUntil([&] { return all[0]->Status()["ready"] == true; })) << all[0]->launcher().err();
  all[0]->launcher().Signal(SIGTERM);
  EXPECT_EQ(all[0]->Wait(), contract::kExitCheckpointed) << all[0]->launcher().err();
  EXPECT_EQ(all[1]->Wait(), contract::kExitCheckpointed) << all[1]->launcher().err();
  EXPECT_EQ(RepeatedBy(Ledger(), 1), 0);
}

TEST_F(ElasticTest, LinearScalingKeepsTheSamplesOfAProcess) {
  scaling_ = "Linear";
  auto all = StartAll();
  ASSERT_TRUE(WaitForCheckpoint()) << all[0]->launcher().err() << all[1]->launcher().err();
  all[1]->launcher().Signal(SIGKILL);
  all[1]->Wait();
  ASSERT_TRUE(Says(*all[0], "generation 1 starts without replica 1")) << all[0]->launcher().err();
  const auto count_in = [&](int64_t generation, int64_t count) {
    const auto ledger = Ledger();
    return std::any_of(ledger.begin(), ledger.end(), [&](const LedgerRecord& record) {
      return record.generation == generation && record.count == count;
    });
  };
  EXPECT_TRUE(WaitUntil([&] { return count_in(1, kBatch * 2 / 3); })) << all[0]->launcher().err();
  EXPECT_TRUE(count_in(0, kBatch));
  EXPECT_FALSE(count_in(1, kBatch));
  EXPECT_THAT(all[0]->Log(0), HasSubstr("a batch of 170 instead of 255"));
  all[0]->launcher().Signal(SIGTERM);
  EXPECT_EQ(all[0]->Wait(), contract::kExitCheckpointed) << all[0]->launcher().err();
  EXPECT_EQ(all[2]->Wait(), contract::kExitCheckpointed) << all[2]->launcher().err();
  const auto stopped = NewestSnapshot(folder_.File("checkpoints"));
  ASSERT_TRUE(stopped);
  const int64_t epochs = stopped->epoch + 1;
  JobRun rest(SpecAlone(epochs, folder_.File("checkpoints")),
              {.environment = {{"TRAINING_LEDGER", folder_.File("ledger")}}});
  ASSERT_EQ(rest.Wait(), 0) << rest.launcher().err();
  const auto ledger = Ledger();
  const auto summary = trainer::checkpoint::CommittedOnce(ledger, kSamples, epochs);
  EXPECT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_LE(RepeatedBy(ledger, 1), 1) << "the others kept what they had";
}

// Two replicas 0 of the same job, as in a partition.
TEST(FencedRunTest, TheRunThatWasTakenOverFromEnds) {
  const TemporaryFolder folder;
  nlohmann::json spec =
      DigitsSpec({.processes = 2, .epochs = 100000, .checkpoints = folder.File("checkpoints"), .every = 20});
  JobRun old(spec);
  ASSERT_TRUE(WaitUntil([&] { return NewestSnapshot(folder.File("checkpoints")).has_value(); }))
      << old.launcher().err();
  JobRun next(spec);
  EXPECT_EQ(old.Wait(), contract::kExitSuperseded) << old.launcher().err();
  EXPECT_THAT(old.launcher().err(), HasSubstr("has taken over from this one"));
  ASSERT_TRUE(WaitUntil([&] { return next.Status()["ready"] == true; })) << next.launcher().err();
  const int64_t step = NewestSnapshot(folder.File("checkpoints"))->step;
  EXPECT_TRUE(WaitUntil([&] { return NewestSnapshot(folder.File("checkpoints"))->step > step + 100; }))
      << next.launcher().err();
  EXPECT_EQ(next.Status()["restarts"], 0) << "it was not disturbed";
  next.launcher().Signal(SIGTERM);
  EXPECT_EQ(next.Wait(), contract::kExitCheckpointed) << next.launcher().err();
}

}  // namespace
}  // namespace lockstep::testing
