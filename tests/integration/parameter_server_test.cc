#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <random>
#include <set>

#include "tests/support/launcher_process.h"
#include "tests/support/training_jobs.h"
#include "trainer/checkpoint/ledger.h"

// Jobs with parameter servers, by `lockstep run`: four workers are ranks 0 to 3, two servers 4 and 5.
namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using trainer::checkpoint::LedgerRecord;
using trainer::checkpoint::Snapshot;

constexpr int kSamples = 4096;  // 16 batches an epoch
constexpr int kLong = 40;       // epochs: long enough to lose something in
constexpr int kFirstServer = 4;

nlohmann::json Role(const std::string& name, int processes) {
  return {{"name", name}, {"processesPerReplica", processes}, {"devices", {{"type", "CPU"}}}};
}

nlohmann::json Served(const Digits& digits, nlohmann::json strategy = {}, bool evaluator = false) {
  nlohmann::json spec = DigitsSpec(digits);
  spec.erase("processesPerReplica");
  spec.erase("devices");
  strategy["type"] = "ParameterServer";
  spec["strategy"] = std::move(strategy);
  spec["roles"] = {Role("worker", 4), Role("ps", 2)};
  if (evaluator) spec["roles"].push_back(Role("evaluator", 1));
  spec["runPolicy"] = {{"maxRestarts", 20}};
  return spec;
}

JobRun::Options WithLedger(const TemporaryFolder& folder) {
  return {.environment = {{"TRAINING_LEDGER", folder.File("ledger")}}};
}

bool WaitForStep(const JobRun& run, int step) {
  return WaitUntil([&] {
    const auto status = run.Status();
    if (!status.is_object()) return run.launcher().HasEnded();
    if (status["phase"] == "Succeeded") return true;
    return status.contains("progress") && status["progress"].value("step", 0) >= step;
  });
}

void Kill(const JobRun& run, size_t rank) {
  const auto status = run.Status();
  ASSERT_TRUE(status.is_object());
  ASSERT_GT(status["ranks"].size(), rank);
  const pid_t pid = status["ranks"][rank].value("pid", 0);
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGKILL);
}

// Whatever order the batches were done in: those that count have each sample of each epoch once.
void ExpectEverySampleOnce(const std::string& file, int epochs) {
  const auto ledger = trainer::checkpoint::ReadLedger(file);
  ASSERT_TRUE(ledger.ok()) << ledger.status().ToString();
  std::vector<LedgerRecord> done;
  for (const LedgerRecord& record : *ledger) {
    if (record.count == 0) {
      ASSERT_LE(record.step, static_cast<int64_t>(done.size()));
      done.resize(static_cast<size_t>(record.step));
    } else {
      ASSERT_EQ(record.step, static_cast<int64_t>(done.size()) + 1);
      done.push_back(record);
    }
  }
  std::set<std::pair<int64_t, int64_t>> seen;
  int64_t samples = 0;
  for (const LedgerRecord& record : done) {
    EXPECT_TRUE(seen.emplace(record.epoch, record.first).second) << record.epoch << ", " << record.first;
    samples += record.count;
  }
  EXPECT_EQ(samples, int64_t{kSamples} * epochs);
}

Snapshot TrainMirrored(const Digits& digits) {
  const TemporaryFolder folder;
  Digits job = digits;
  job.checkpoints = folder.File("checkpoints");
  JobRun run(DigitsSpec(job));
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  return NewestSnapshot(job.checkpoints).value();
}

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, static_cast<double>(std::fabs(a[i] - b[i])));
  }
  return largest;
}

TEST(ParameterServerTest, SynchronousWorkersTrainAsMirroredOnesDo) {
  const TemporaryFolder folder;
  const Digits digits{
      .samples = kSamples, .epochs = 3, .checkpoints = folder.File("checkpoints"), .every = 0};
  nlohmann::json spec = Served(digits, {}, true);
  spec["trainer"]["checkpoint"].erase("every");
  JobRun run(spec, WithLedger(folder));
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_GT(TestAccuracy(run.Log(6)), 0.5) << run.Log(6);
  EXPECT_THAT(run.Log(kFirstServer), HasSubstr("epoch 3/3: loss"));
  const Snapshot served = NewestSnapshot(digits.checkpoints).value();
  const Snapshot mirrored = TrainMirrored({.processes = 4, .samples = kSamples, .epochs = 3});
  EXPECT_EQ(served.step, 48);
  EXPECT_EQ(served.step, mirrored.step);
  EXPECT_LT(LargestDifference(served.parameters, mirrored.parameters), 1e-5);
  ExpectEverySampleOnce(folder.File("ledger"), 3);
}

TEST(ParameterServerTest, SynchronousLossesAreThoseOfOneProcess) {
  const TemporaryFolder folder;
  // One epoch of 100 steps; a checkpoint at step 99 has the sum over those before.
  Digits digits{.samples = 25600, .epochs = 1, .checkpoints = folder.File("served"), .every = 99};
  JobRun served(Served(digits));
  ASSERT_EQ(served.Wait(), 0) << served.launcher().err();
  const double loss = LossUpTo(digits.checkpoints, "0099");
  digits.processes = 1;
  digits.checkpoints = folder.File("alone");
  JobRun alone(DigitsSpec(digits));
  ASSERT_EQ(alone.Wait(), 0) << alone.launcher().err();
  EXPECT_NEAR(loss / LossUpTo(digits.checkpoints, "0099"), 1, 1e-5);
}

TEST(ParameterServerTest, LostWorkersAndServersCostNothingButTime) {
  const TemporaryFolder folder;
  const Digits digits{
      .samples = kSamples, .epochs = 12, .checkpoints = folder.File("checkpoints"), .every = 16};
  JobRun run(Served(digits), WithLedger(folder));
  int step = 10;
  for (const size_t victim : {1, kFirstServer + 1, 0, kFirstServer}) {
    ASSERT_TRUE(WaitForStep(run, step)) << run.launcher().err();
    const auto status = run.Status();
    if (!status.is_object() || status["phase"] != "Running") break;
    Kill(run, victim);
    step += 30;
  }
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(), HasSubstr("alone"));
  ExpectEverySampleOnce(folder.File("ledger"), 12);
  const Snapshot undisturbed = TrainMirrored({.processes = 4, .samples = kSamples, .epochs = 12});
  const Snapshot served = NewestSnapshot(digits.checkpoints).value();
  EXPECT_EQ(served.step, undisturbed.step);
  EXPECT_LT(LargestDifference(served.parameters, undisturbed.parameters), 1e-5);
}

TEST(ParameterServerTest, AsynchronousTooEverySampleCountsOnce) {
  const TemporaryFolder folder;
  const Digits digits{
      .samples = kSamples, .epochs = 12, .checkpoints = folder.File("checkpoints"), .every = 16};
  JobRun run(Served(digits, {{"synchronous", false}, {"maxGradientAge", 6}}, true), WithLedger(folder));
  int step = 10;
  for (const size_t victim : {2, kFirstServer, kFirstServer + 1}) {
    ASSERT_TRUE(WaitForStep(run, step)) << run.launcher().err();
    const auto status = run.Status();
    if (!status.is_object() || status["phase"] != "Running") break;
    Kill(run, victim);
    step += 30;
  }
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  ExpectEverySampleOnce(folder.File("ledger"), 12);
}

// Whatever is killed when; the seed is fixed, the machine is not.
class RandomLossTest : public ::testing::TestWithParam<unsigned> {};

TEST_P(RandomLossTest, LosesNothingAndDoesNothingTwice) {
  std::mt19937 random(GetParam());
  const auto below = [&](unsigned limit) { return static_cast<int>(random() % limit); };
  const TemporaryFolder folder;
  const Digits digits{
      .samples = kSamples, .epochs = kLong, .checkpoints = folder.File("checkpoints"), .every = 20};
  const bool synchronous = GetParam() % 2 == 0;
  nlohmann::json strategy = {{"synchronous", synchronous}};
  if (synchronous) strategy["waitFor"] = 2 + below(3);
  JobRun run(Served(digits, strategy, below(2) == 1), WithLedger(folder));
  ASSERT_TRUE(WaitForStep(run, 1 + below(200))) << run.launcher().err();
  const auto status = run.Status();
  if (status.is_object() && status["phase"] == "Running") {
    const auto victim = static_cast<size_t>(below(static_cast<unsigned>(status["ranks"].size())));
    const pid_t pid = status["ranks"][victim].value("pid", 0);
    if (pid > 0) ::kill(pid, SIGKILL);
  }
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  RecordProperty("restarted", run.launcher().err().find("alone") != std::string::npos);
  EXPECT_EQ(NewestSnapshot(digits.checkpoints).value().step, 16 * kLong);
  ExpectEverySampleOnce(folder.File("ledger"), kLong);
}

INSTANTIATE_TEST_SUITE_P(Moments, RandomLossTest, ::testing::Range(0u, 20u));

TEST(ParameterServerTest, StoppedItGoesOnWhereItWasAndMirroredGoesOnWithItsModel) {
  const TemporaryFolder folder;
  const Digits digits{
      .samples = kSamples, .epochs = 20, .checkpoints = folder.File("checkpoints"), .every = 50};
  {
    JobRun run(Served(digits), WithLedger(folder));
    ASSERT_TRUE(WaitForStep(run, 20)) << run.launcher().err();
    run.launcher().Signal(SIGTERM);
    EXPECT_EQ(run.Wait(), 75) << run.launcher().err();
  }
  const int64_t stopped = NewestSnapshot(digits.checkpoints).value().step;
  EXPECT_GE(stopped, 20);
  {
    JobRun run(Served(digits), WithLedger(folder));
    ASSERT_TRUE(WaitForStep(run, static_cast<int>(stopped) + 20)) << run.launcher().err();
    run.launcher().Signal(SIGTERM);
    EXPECT_EQ(run.Wait(), 75) << run.launcher().err();
  }
  EXPECT_GE(NewestSnapshot(digits.checkpoints).value().step, stopped + 20);
  JobRun mirrored(DigitsSpec(digits), WithLedger(folder));
  ASSERT_EQ(mirrored.Wait(), 0) << mirrored.launcher().err();
  EXPECT_EQ(NewestSnapshot(digits.checkpoints).value().step, 320);
  ExpectEverySampleOnce(folder.File("ledger"), 20);
}

}  // namespace
}  // namespace lockstep::testing
