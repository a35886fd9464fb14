#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>

#include "tests/support/launcher_process.h"
#include "tests/support/training_jobs.h"
#include "tests/support/two_hosts.h"
#include "trainer/checkpoint/ledger.h"

// One job on two machines, started by hand on each.
namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kSamples = 4096;
constexpr int kEpochs = 20;

class MachinesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.ok()) GTEST_SKIP() << "cannot make network namespaces: not root";
  }

  nlohmann::json Spec(int epochs = kEpochs) const {
    nlohmann::json spec = DigitsSpec({.processes = 2,
                                      .samples = kSamples,
                                      .epochs = epochs,
                                      .checkpoints = folder_.File("checkpoints"),
                                      .every = 20});
    spec["replicas"] = 2;
    return spec;
  }

  std::unique_ptr<JobRun> Start(int replica, const nlohmann::json& spec) const {
    // Both know the token beforehand, as two machines of which one can't see the other's files.
    return std::make_unique<JobRun>(
        spec,
        JobRun::Options{.arguments = {"--replica", std::to_string(replica), "--rendezvous",
                                      hosts_.Address(0) + ":29500", "--token-file", folder_.File("token")},
                        .environment = {{"TRAINING_LEDGER", folder_.File("ledger")}},
                        .wrapper = hosts_.On(replica)});
  }

  // Replica 0 first, since it makes the token.
  std::pair<std::unique_ptr<JobRun>, std::unique_ptr<JobRun>> StartBoth(const nlohmann::json& spec) const {
    auto first = Start(0, spec);
    EXPECT_TRUE(WaitUntil([&] { return !ReadText(folder_.File("token")).empty(); }))
        << first->launcher().err();
    return {std::move(first), Start(1, spec)};
  }

  // That a checkpoint is there means that steps were taken together.
  bool WaitForCheckpoint() const {
    return WaitUntil([&] { return NewestSnapshot(folder_.File("checkpoints")).has_value(); });
  }

  void ExpectEachSampleOnce(int epochs = kEpochs) const {
    const auto ledger = trainer::checkpoint::ReadLedger(folder_.File("ledger"));
    ASSERT_TRUE(ledger.ok()) << ledger.status().ToString();
    const auto summary = trainer::checkpoint::CommittedOnce(*ledger, kSamples, epochs);
    EXPECT_TRUE(summary.ok()) << summary.status().ToString();
  }

  TwoHosts hosts_;
  TemporaryFolder folder_;
};

TEST_F(MachinesTest, TwoMachinesTrainAsOne) {
  auto [first, second] = StartBoth(Spec());
  EXPECT_EQ(first->Wait(), 0) << first->launcher().err();
  EXPECT_EQ(second->Wait(), 0) << second->launcher().err();
  ExpectEachSampleOnce();
  const auto two = NewestSnapshot(folder_.File("checkpoints"));
  ASSERT_TRUE(two);

  const TemporaryFolder alone;
  JobRun one(DigitsSpec(
      {.processes = 1, .samples = kSamples, .epochs = kEpochs, .checkpoints = alone.File("checkpoints")}));
  ASSERT_EQ(one.Wait(), 0) << one.launcher().err();
  EXPECT_NEAR(TestAccuracy(first->Log(0)), TestAccuracy(one.Log(0)), 0.01);
}

TEST_F(MachinesTest, ALostLauncherIsNoticedAndWaitedFor) {
  const auto spec = Spec(/*epochs=*/200);
  auto [first, second] = StartBoth(spec);
  ASSERT_TRUE(WaitForCheckpoint()) << first->launcher().err() << second->launcher().err();
  second->launcher().Signal(SIGKILL);
  EXPECT_TRUE(WaitUntil([&] { return first->launcher().err().find("replica 1") != std::string::npos; },
                        InTime(std::chrono::seconds(5))))
      << first->launcher().err();
  second->Wait();
  auto again = Start(1, spec);
  EXPECT_EQ(first->Wait(InTime(std::chrono::seconds(120))), 0) << first->launcher().err();
  EXPECT_EQ(again->Wait(), 0) << again->launcher().err();
  ExpectEachSampleOnce(200);
}

TEST_F(MachinesTest, ALostLeaderIsNoticedAndWaitedFor) {
  const auto spec = Spec(/*epochs=*/200);
  auto [first, second] = StartBoth(spec);
  ASSERT_TRUE(WaitForCheckpoint()) << first->launcher().err() << second->launcher().err();
  first->launcher().Signal(SIGKILL);
  first->Wait();
  EXPECT_TRUE(WaitUntil([&] { return second->launcher().err().find("replica 0") != std::string::npos; },
                        InTime(std::chrono::seconds(5))))
      << second->launcher().err();
  auto again = Start(0, spec);
  EXPECT_EQ(again->Wait(InTime(std::chrono::seconds(120))), 0) << again->launcher().err();
  EXPECT_EQ(second->Wait(), 0) << second->launcher().err();
  ExpectEachSampleOnce(200);
}

TEST_F(MachinesTest, BothSidesStopInAPartitionAndGoOnAfterIt) {
  const auto spec = Spec(/*epochs=*/200);
  auto [first, second] = StartBoth(spec);
  ASSERT_TRUE(WaitForCheckpoint()) << first->launcher().err() << second->launcher().err();
  hosts_.Cut();
  // Silent for four seconds is lost; a little more for a busy machine.
  for (const JobRun* side : {first.get(), second.get()}) {
    EXPECT_TRUE(WaitUntil(
        [&] {
          return side->launcher().err().find("replica ") != std::string::npos &&
                 side->launcher().err().find("lost") != std::string::npos;
        },
        InTime(std::chrono::seconds(8))))
        << side->launcher().err();
  }
  hosts_.Mend();
  EXPECT_EQ(first->Wait(InTime(std::chrono::seconds(120))), 0) << first->launcher().err();
  EXPECT_EQ(second->Wait(), 0) << second->launcher().err();
  ExpectEachSampleOnce(200);
}

TEST_F(MachinesTest, AWrongTokenIsRefused) {
  auto first = Start(0, Spec());
  ASSERT_TRUE(WaitUntil([&] { return !ReadText(folder_.File("token")).empty(); }));
  const std::string wrong = folder_.Write("wrong", std::string(64, 'a') + "\n");
  std::filesystem::permissions(wrong,
                               std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  JobRun second(Spec(), {.arguments = {"--replica", "1", "--rendezvous", hosts_.Address(0) + ":29500",
                                       "--token-file", wrong},
                         .wrapper = hosts_.On(1)});
  EXPECT_NE(second.Wait(), 0);
  EXPECT_THAT(second.launcher().err(), HasSubstr("token"));
  first->launcher().Signal(SIGTERM);
  first->Wait();
}

}  // namespace
}  // namespace lockstep::testing
