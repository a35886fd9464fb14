#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tuple>

#include "tests/support/launcher_process.h"
#include "tests/support/training_jobs.h"
#include "trainer/checkpoint/ledger.h"

// Nothing is lost and nothing is done twice, whatever is killed when.
namespace lockstep::testing {
namespace {

using trainer::checkpoint::Snapshot;

constexpr int kSamples = 4096;
constexpr int kEpochs = 20;  // 320 steps

// Of four processes.
nlohmann::json Strategy(const std::string& type) {
  if (type != "Pipeline") return {{"type", type}};
  return {{"type", type},
          {"stages", {{{"first", 0}, {"last", 0}}, {{"first", 1}, {"last", 1}}}},
          {"schedule", "OneForwardOneBackward"}};
}

nlohmann::json Job(const TemporaryFolder& folder, int every = 20, const std::string& strategy = "Mirrored") {
  nlohmann::json spec = DigitsSpec(
      {.samples = kSamples, .epochs = kEpochs, .checkpoints = folder.File("checkpoints"), .every = every});
  spec["strategy"] = Strategy(strategy);
  return spec;
}

JobRun::Options WithLedger(const TemporaryFolder& folder) {
  return {.environment = {{"TRAINING_LEDGER", folder.File("ledger")}}};
}

const Snapshot& Undisturbed(const std::string& strategy) {
  static std::map<std::string, Snapshot> snapshots;
  const auto found = snapshots.find(strategy);
  if (found != snapshots.end()) return found->second;
  const TemporaryFolder folder;
  JobRun run(Job(folder, 20, strategy));
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  return snapshots[strategy] = NewestSnapshot(folder.File("checkpoints")).value();
}

// `repeated`: steps that may have been done again, if that is known.
void ExpectAsUndisturbed(const TemporaryFolder& folder, const std::string& strategy = "Mirrored",
                         std::optional<int64_t> repeated = {}) {
  const auto snapshot = NewestSnapshot(folder.File("checkpoints"));
  ASSERT_TRUE(snapshot);
  const Snapshot& undisturbed = Undisturbed(strategy);
  EXPECT_EQ(snapshot->step, undisturbed.step);
  EXPECT_EQ(snapshot->parameters, undisturbed.parameters);
  EXPECT_EQ(snapshot->slots, undisturbed.slots);
  const auto ledger = trainer::checkpoint::ReadLedger(folder.File("ledger"));
  ASSERT_TRUE(ledger.ok()) << ledger.status().ToString();
  const auto summary = trainer::checkpoint::CommittedOnce(*ledger, kSamples, kEpochs);
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  if (repeated) {
    EXPECT_EQ(summary->repeated, *repeated);
  }
}

// From a start to the middle of the training; the seed is fixed, the machine is not.
class RandomMoment {
 public:
  explicit RandomMoment(unsigned seed) : random_(seed) {}
  int NextStep() { return std::uniform_int_distribution<int>(0, 300)(random_); }
  int NextRank() { return std::uniform_int_distribution<int>(0, 3)(random_); }

 private:
  std::mt19937 random_;
};

bool WaitForStep(const JobRun& run, int step) {
  return WaitUntil([&] {
    const auto status = run.Status();
    if (!status.is_object()) return run.launcher().HasEnded();
    if (status["phase"] == "Succeeded") return true;
    return step == 0 ? status["phase"] == "Running" && status["ranks"].size() == 4
                     : status.contains("progress") && status["progress"].value("step", 0) >= step;
  });
}

class RecoveryTest : public ::testing::TestWithParam<std::tuple<std::string, unsigned>> {
 protected:
  static std::string Type() { return std::get<0>(GetParam()); }
  static unsigned Seed() { return std::get<1>(GetParam()); }
  // Half of them with a checkpoint after each step, so that most moments are those of writing one.
  static nlohmann::json Spec(const TemporaryFolder& folder) {
    return Job(folder, Seed() % 2 == 0 ? 1 : 20, Type());
  }
};

TEST_P(RecoveryTest, AKilledRankCostsNothingButTime) {
  RandomMoment moment(Seed());
  const TemporaryFolder folder;
  JobRun run(Spec(folder), WithLedger(folder));
  ASSERT_TRUE(WaitForStep(run, moment.NextStep())) << run.launcher().err();
  const auto status = run.Status();
  if (status.is_object()) {
    const auto& ranks = status["ranks"];
    const size_t victim = static_cast<size_t>(moment.NextRank());
    if (victim < ranks.size() && ranks[victim].value("pid", 0) > 0) ::kill(ranks[victim]["pid"], SIGKILL);
  }
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  RecordProperty("regrouped", run.launcher().err().find("SIGKILL") != std::string::npos);
  ExpectAsUndisturbed(folder, Type(), 0);
}

TEST_P(RecoveryTest, AKilledLauncherCostsNothingButTime) {
  RandomMoment moment(Seed() + 100);
  const TemporaryFolder folder;
  {
    JobRun run(Spec(folder), WithLedger(folder));
    ASSERT_TRUE(WaitForStep(run, moment.NextStep())) << run.launcher().err();
    run.launcher().Signal(SIGKILL);
    run.Wait();
  }
  JobRun again(Spec(folder), WithLedger(folder));
  ASSERT_EQ(again.Wait(), 0) << again.launcher().err();
  ExpectAsUndisturbed(folder, Type());
}

INSTANTIATE_TEST_SUITE_P(RandomMoments, RecoveryTest,
                         ::testing::Combine(::testing::Values("Mirrored", "Pipeline"),
                                            ::testing::Range(0u, 10u)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::to_string(std::get<1>(info.param));
                         });

TEST(RecoveryOnRequestTest, AStoppedJobGoesOnWhereItWas) {
  const TemporaryFolder folder;
  {
    JobRun run(Job(folder), WithLedger(folder));
    ASSERT_TRUE(WaitForStep(run, 50)) << run.launcher().err();
    run.launcher().Signal(SIGTERM);
    const int code = run.Wait();
    EXPECT_TRUE(code == 75 || code == 0) << code << run.launcher().err();
  }
  JobRun again(Job(folder), WithLedger(folder));
  ASSERT_EQ(again.Wait(), 0) << again.launcher().err();
  ExpectAsUndisturbed(folder);
}

TEST(RecoveryOnRequestTest, ARunAfterOneWithRestartsTakesItsFolderOver) {
  const TemporaryFolder folder;
  nlohmann::json spec = Job(folder);
  spec["trainer"]["epochs"] = 100000;
  {
    JobRun run(spec);
    ASSERT_TRUE(WaitForStep(run, 20)) << run.launcher().err();
    const auto pids = run.Pids(0);
    ASSERT_EQ(pids.size(), 4u);
    ::kill(pids[1], SIGKILL);
    ASSERT_EQ(run.Pids(1).size(), 4u) << run.launcher().err();
    ASSERT_TRUE(WaitUntil([&] { return run.Status()["ready"] == true; })) << run.launcher().err();
    run.launcher().Signal(SIGTERM);
    EXPECT_EQ(run.Wait(), 75) << run.launcher().err();
  }
  const int64_t reached = NewestSnapshot(folder.File("checkpoints")).value().step;
  JobRun again(spec);
  ASSERT_TRUE(WaitForStep(again, static_cast<int>(reached) + 20)) << again.launcher().err();
  again.launcher().Signal(SIGTERM);
  EXPECT_EQ(again.Wait(), 75) << again.launcher().err();
  EXPECT_GT(NewestSnapshot(folder.File("checkpoints")).value().step, reached);
}

TEST(RecoveryOnRequestTest, AHungRankIsFoundNamedAndReplaced) {
  const TemporaryFolder folder;
  nlohmann::json spec = Job(folder);
  spec["trainer"]["epochs"] = 100000;
  spec["runPolicy"] = {{"progressDeadlineSeconds", 1}};
  JobRun run(spec);
  ASSERT_TRUE(WaitForStep(run, 30)) << run.launcher().err();
  const auto pids = run.Pids(0);
  ASSERT_EQ(pids.size(), 4u);
  ::kill(pids[2], SIGSTOP);
  ASSERT_EQ(run.Pids(1).size(), 4u) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(), ::testing::HasSubstr("rank 2"));
  EXPECT_TRUE(WaitUntil([&] { return run.Status()["ready"] == true; })) << run.launcher().err();
  run.launcher().Signal(SIGTERM);
  EXPECT_EQ(run.Wait(), 75) << run.launcher().err();
}

}  // namespace
}  // namespace lockstep::testing
