#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "common/contract/exit_codes.h"
#include "tests/paths.h"
#include "tests/support/free_port.h"
#include "tests/support/launcher_process.h"

// Programs that outlive a generation that failed (tests/support/regrouping_program.py).
namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RegroupTest : public ::testing::Test {
 protected:
  nlohmann::json Spec(int processes, const std::vector<std::string>& behaviours = {}) const {
    std::vector<std::string> command = {"python3", LOCKSTEP_SOURCE_DIR "/tests/support/regrouping_program.py",
                                        folder_.path().string()};
    command.insert(command.end(), behaviours.begin(), behaviours.end());
    return ProgramSpec(processes, command);
  }
  // Every process has taken `steps` steps.
  bool TakeSteps(const JobRun& run, int steps) const {
    folder_.Write("step", std::string(static_cast<size_t>(steps), '.'));
    return WaitUntil([&] {
      const nlohmann::json status = run.Status();
      if (!status.is_object() || status["ranks"].empty()) return false;
      return std::all_of(status["ranks"].begin(), status["ranks"].end(),
                         [steps](const auto& rank) { return rank["step"] == steps; });
    });
  }
  int Finish(JobRun& run) const {
    folder_.Write("done", "");
    return run.Wait();
  }
  static bool Says(const JobRun& run, const std::string& text) {
    return WaitUntil([&] { return run.launcher().err().find(text) != std::string::npos; });
  }
  static bool Logs(const JobRun& run, int rank, const std::string& text) {
    return WaitUntil([&] { return run.Log(rank).find(text) != std::string::npos; });
  }
  // As the process itself says how it began in the generation.
  static std::string Began(int generation, int rank, int world, int steps, pid_t pid) {
    return "generation " + std::to_string(generation) + " rank " + std::to_string(rank) + " of " +
           std::to_string(world) + " holds " + std::to_string(steps) + " pid " + std::to_string(pid) + "\n";
  }

  TemporaryFolder folder_;
};

TEST_F(RegroupTest, OnlyTheKilledRankIsStartedAnew) {
  JobRun run(Spec(4));
  const auto before = run.Pids(0);
  ASSERT_EQ(before.size(), 4u) << run.launcher().err();
  ASSERT_TRUE(TakeSteps(run, 3));
  ::kill(before[2], SIGKILL);
  const auto after = run.Pids(1);
  ASSERT_EQ(after.size(), 4u) << run.launcher().err();
  for (const int rank : {0, 1, 3}) {
    EXPECT_EQ(after[rank], before[rank]);
    EXPECT_TRUE(Logs(run, rank, Began(1, rank, 4, 3, before[rank]))) << run.Log(rank);
    EXPECT_THAT(run.Log(rank), HasSubstr("=== generation 1"));
  }
  EXPECT_NE(after[2], before[2]);
  EXPECT_TRUE(Logs(run, 2, Began(1, 2, 4, 0, after[2]))) << run.Log(2);
  EXPECT_EQ(run.Status()["restarts"], 1);
  EXPECT_EQ(run.Status()["lastFailure"]["process"], 2);
  EXPECT_THAT(run.launcher().err(), AllOf(HasSubstr("rank 2 (worker, pid"), HasSubstr("failed first"),
                                          HasSubstr("ranks 0, 1 and 3 keep what they hold (step 3)"),
                                          HasSubstr("restarting what is lost (1 of 3)")));
  ASSERT_TRUE(TakeSteps(run, 5));
  EXPECT_EQ(Finish(run), 0) << run.launcher().err();
}

TEST_F(RegroupTest, AJobMaySurviveManyFailures) {
  nlohmann::json spec = Spec(3);
  spec["runPolicy"] = {{"maxRestarts", 3}};
  JobRun run(spec);
  ASSERT_TRUE(TakeSteps(run, 1)) << run.launcher().err();
  const pid_t first = run.Pids(0).at(0);
  for (int i = 0; i < 3; ++i) {
    const auto pids = run.Pids(i);
    ASSERT_EQ(pids.size(), 3u) << run.launcher().err();
    ASSERT_TRUE(TakeSteps(run, i + 2));
    ::kill(pids[1 + i % 2], SIGKILL);
  }
  ASSERT_EQ(run.Pids(3).size(), 3u) << run.launcher().err();
  EXPECT_EQ(run.Pids(3).at(0), first);
  EXPECT_EQ(Finish(run), 0) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(), HasSubstr("3 restarts"));
}

TEST_F(RegroupTest, ProcessesThatDoNotSaySoAreStoppedAndStartedAgain) {
  JobRun run(Spec(3, {"1=plain"}));
  const auto before = run.Pids(0);
  ASSERT_TRUE(TakeSteps(run, 2)) << run.launcher().err();
  ::kill(before[2], SIGKILL);
  const auto after = run.Pids(1);
  ASSERT_EQ(after.size(), 3u) << run.launcher().err();
  EXPECT_EQ(after[0], before[0]);
  EXPECT_NE(after[1], before[1]);
  EXPECT_FALSE(IsAlive(before[1]));
  EXPECT_THAT(run.Log(1), Not(HasSubstr("asked to stop"))) << "the grace of a restart is 0";
  EXPECT_EQ(Finish(run), 0) << run.launcher().err();
}

TEST_F(RegroupTest, WhatAnswersNotOrWithRubbishIsStartedAnew) {
  JobRun run(Spec(4, {"1=silent", "3=rubbish"}));
  const auto before = run.Pids(0);
  ASSERT_TRUE(TakeSteps(run, 2)) << run.launcher().err();
  const auto start = std::chrono::steady_clock::now();
  ::kill(before[0], SIGKILL);
  const auto after = run.Pids(1);
  ASSERT_EQ(after.size(), 4u) << run.launcher().err();
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(after[2], before[2]);
  EXPECT_NE(after[1], before[1]);
  EXPECT_NE(after[3], before[3]);
  EXPECT_THAT(run.launcher().err(), HasSubstr("ranks 1 and 3 do not answer and are started anew"));
  EXPECT_EQ(run.Status()["malformedEvents"], 3);
  EXPECT_EQ(Finish(run), 0) << run.launcher().err();
}

TEST_F(RegroupTest, AnsweringTwiceIsAnsweringOnce) {
  JobRun run(Spec(2, {"1=twice"}));
  const auto before = run.Pids(0);
  ASSERT_TRUE(TakeSteps(run, 2)) << run.launcher().err();
  ::kill(before[0], SIGKILL);
  const auto after = run.Pids(1);
  ASSERT_EQ(after.size(), 2u) << run.launcher().err();
  EXPECT_EQ(after[1], before[1]);
  ASSERT_TRUE(TakeSteps(run, 4));
  EXPECT_EQ(Finish(run), 0) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(), HasSubstr("1 restarts"));
}

TEST_F(RegroupTest, WithoutAnotherFailureTheLostPeersAreTheFailure) {
  JobRun run(Spec(3, {"1=lost"}));
  const auto before = run.Pids(0);
  ASSERT_TRUE(TakeSteps(run, 2)) << run.launcher().err();
  folder_.Write("lost", "");
  EXPECT_TRUE(WaitUntil([&] {
    const nlohmann::json status = run.Status();
    return status.is_object() && status["ranks"][1]["phase"] == "Regrouping";
  })) << run.Status();
  const auto after = run.Pids(1);
  EXPECT_EQ(after, before) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(), HasSubstr("rank 1 lost its peers"));
  EXPECT_EQ(run.Status()["lastFailure"]["exitCode"], contract::kExitCollectiveLost);
  EXPECT_EQ(run.Status()["restarts"], 1);
  EXPECT_EQ(Finish(run), 0) << run.launcher().err();
}

TEST_F(RegroupTest, WhenTheBudgetIsUsedUpThoseThatWaitAreStopped) {
  nlohmann::json spec = Spec(3, {"1=stubborn"});
  spec["runPolicy"] = {{"maxRestarts", 0}, {"terminationGracePeriodSeconds", 1}};
  JobRun run(spec);
  const auto pids = run.Pids(0);
  ASSERT_TRUE(TakeSteps(run, 2)) << run.launcher().err();
  ::kill(pids[2], SIGKILL);
  EXPECT_EQ(run.Wait(), 128 + SIGKILL) << run.launcher().err();
  EXPECT_THAT(run.Log(0), HasSubstr("asked to stop while parked"));
  EXPECT_THAT(run.Log(1), HasSubstr("asked to stop while parked"));
  for (const pid_t pid : pids) EXPECT_FALSE(IsAlive(pid));
}

class StopWhileParkedTest : public RegroupTest, public ::testing::WithParamInterface<int> {};

// The second restart waits for a second.
TEST_P(StopWhileParkedTest, ThoseThatWaitAreAskedToStop) {
  JobRun run(Spec(3));
  auto pids = run.Pids(0);
  ASSERT_TRUE(TakeSteps(run, 2)) << run.launcher().err();
  ::kill(pids[2], SIGKILL);
  pids = run.Pids(1);
  ASSERT_TRUE(TakeSteps(run, 3)) << run.launcher().err();
  ::kill(pids[2], SIGKILL);
  ASSERT_TRUE(Says(run, "restarting what is lost (2 of 3) in 1.0 s")) << run.launcher().err();
  run.launcher().Signal(GetParam());
  EXPECT_EQ(run.Wait(), 128 + GetParam()) << run.launcher().err();
  for (const int rank : {0, 1}) EXPECT_THAT(run.Log(rank), HasSubstr("asked to stop while parked"));
  for (const pid_t pid : pids) EXPECT_FALSE(IsAlive(pid));
}

INSTANTIATE_TEST_SUITE_P(Signals, StopWhileParkedTest, ::testing::Values(SIGINT, SIGTERM));

TEST_F(RegroupTest, AStopReachesThoseThatAreBeingAsked) {
  JobRun run(Spec(3, {"1=silent"}));
  const auto pids = run.Pids(0);
  ASSERT_TRUE(TakeSteps(run, 2)) << run.launcher().err();
  ::kill(pids[2], SIGKILL);
  ASSERT_TRUE(WaitUntil([&] {
    const nlohmann::json status = run.Status();
    return status.is_object() && status["ranks"][0]["phase"] == "Regrouping";
  }));
  run.launcher().Signal(SIGTERM);
  EXPECT_EQ(run.Wait(), 128 + SIGKILL) << "the rank that failed: " << run.launcher().err();
  EXPECT_THAT(run.Log(0), HasSubstr("asked to stop while parked"));
  EXPECT_THAT(run.Log(1), HasSubstr("asked to stop while running"));
}

TEST_F(RegroupTest, ASecondStopDoesNotWaitForTheGrace) {
  nlohmann::json spec = Spec(2, {"0=stubborn"});
  spec["runPolicy"] = {{"maxRestarts", 0}, {"terminationGracePeriodSeconds", 3600}};
  JobRun run(spec);
  const auto pids = run.Pids(0);
  ASSERT_TRUE(TakeSteps(run, 2)) << run.launcher().err();
  ::kill(pids[1], SIGKILL);
  ASSERT_TRUE(Logs(run, 0, "asked to stop while parked"));
  run.launcher().Signal(SIGINT);
  run.launcher().Signal(SIGINT);
  EXPECT_TRUE(WaitUntil([&] {
    if (!IsAlive(pids[0])) return true;
    run.launcher().Signal(SIGINT);  // two of them may have been one
    return false;
  }));
  EXPECT_EQ(run.Wait(), 128 + SIGKILL) << run.launcher().err();
}

TEST_F(RegroupTest, OneThatDiesWhileItWaitsIsStartedAnewAndNoFailure) {
  JobRun run(Spec(3));
  auto pids = run.Pids(0);
  ASSERT_TRUE(TakeSteps(run, 2)) << run.launcher().err();
  ::kill(pids[2], SIGKILL);
  pids = run.Pids(1);
  ASSERT_TRUE(TakeSteps(run, 3)) << run.launcher().err();
  ::kill(pids[2], SIGKILL);
  ASSERT_TRUE(Says(run, "restarting what is lost (2 of 3) in 1.0 s")) << run.launcher().err();
  ::kill(pids[1], SIGKILL);
  const auto after = run.Pids(2);
  ASSERT_EQ(after.size(), 3u) << run.launcher().err();
  EXPECT_EQ(after[0], pids[0]);
  EXPECT_NE(after[1], pids[1]);
  EXPECT_EQ(run.Status()["restarts"], 2);
  EXPECT_EQ(Finish(run), 0) << run.launcher().err();
}

TEST_F(RegroupTest, OneThatNeverReadsItsNewGenerationIsFoundAtTheNextFailure) {
  JobRun run(Spec(3, {"1=deaf"}));
  const auto before = run.Pids(0);
  ASSERT_TRUE(TakeSteps(run, 2)) << run.launcher().err();
  ::kill(before[2], SIGKILL);
  const auto after = run.Pids(1);
  ASSERT_EQ(after.size(), 3u) << run.launcher().err();
  EXPECT_EQ(after[1], before[1]);
  ::kill(after[2], SIGKILL);
  const auto last = run.Pids(2);
  ASSERT_EQ(last.size(), 3u) << run.launcher().err();
  EXPECT_EQ(last[0], before[0]);
  EXPECT_NE(last[1], before[1]);
  EXPECT_EQ(Finish(run), 0) << run.launcher().err();
}

TEST_F(RegroupTest, AHungRankIsKilledAndTheOthersGoOn) {
  nlohmann::json spec = Spec(3);
  spec["runPolicy"] = {{"progressDeadlineSeconds", 1}};
  JobRun run(spec);
  const auto before = run.Pids(0);
  ASSERT_TRUE(TakeSteps(run, 2)) << run.launcher().err();
  ::kill(before[1], SIGSTOP);
  folder_.Write("step", "...");
  ASSERT_TRUE(Says(run, "the job hangs: ")) << run.launcher().err();
  const auto after = run.Pids(1);
  ASSERT_EQ(after.size(), 3u) << run.launcher().err();
  EXPECT_EQ(after[0], before[0]);
  EXPECT_NE(after[1], before[1]);
  EXPECT_EQ(after[2], before[2]);
  EXPECT_EQ(Finish(run), 0) << run.launcher().err();
}

// Two launchers on one machine.
class RegroupReplicasTest : public RegroupTest {
 protected:
  std::unique_ptr<JobRun> Start(int replica) const {
    nlohmann::json spec = Spec(2, behaviours_);
    spec["replicas"] = 2;
    spec["runPolicy"] = policy_;
    return std::make_unique<JobRun>(
        spec, JobRun::Options{.arguments = {"--replica", std::to_string(replica), "--rendezvous",
                                            "127.0.0.1:" + std::to_string(port_), "--token-file",
                                            folder_.File("token")}});
  }
  void StartBoth() {
    first_ = Start(0);
    ASSERT_TRUE(WaitUntil([&] { return !ReadText(folder_.File("token")).empty(); }));
    second_ = Start(1);
    before_[0] = first_->Pids(0);
    before_[1] = second_->Pids(0);
    ASSERT_EQ(before_[0].size(), 2u) << first_->launcher().err();
    ASSERT_EQ(before_[1].size(), 2u) << second_->launcher().err();
    ASSERT_TRUE(TakeSteps(*first_, 2) && TakeSteps(*second_, 2));
  }
  void FinishBoth() {
    folder_.Write("done", "");
    EXPECT_EQ(first_->Wait(), 0) << first_->launcher().err();
    EXPECT_EQ(second_->Wait(), 0) << second_->launcher().err();
  }

  std::vector<std::string> behaviours_;
  nlohmann::json policy_ = nlohmann::json::object();
  int port_ = FreePort();
  std::unique_ptr<JobRun> first_, second_;
  std::array<std::vector<pid_t>, 2> before_;
};

TEST_F(RegroupReplicasTest, ARankOfOneReplicaIsLostAndAllOthersOfBothGoOn) {
  StartBoth();
  ::kill(before_[1].at(1), SIGKILL);
  const auto first = first_->Pids(1), second = second_->Pids(1);
  EXPECT_EQ(first, before_[0]) << first_->launcher().err();
  ASSERT_EQ(second.size(), 2u) << second_->launcher().err();
  EXPECT_EQ(second[0], before_[1][0]);
  EXPECT_NE(second[1], before_[1][1]);
  FinishBoth();
}

TEST_F(RegroupReplicasTest, ALostReplicaIsWaitedForWhileTheOthersKeepTheirState) {
  StartBoth();
  second_->launcher().Signal(SIGKILL);
  second_->Wait();
  ASSERT_TRUE(Says(*first_, "ranks 0 and 1 keep what they hold (step 2)")) << first_->launcher().err();
  second_ = Start(1);
  EXPECT_EQ(first_->Pids(1), before_[0]) << first_->launcher().err();
  ASSERT_EQ(second_->Pids(1).size(), 2u) << second_->launcher().err();
  FinishBoth();
}

TEST_F(RegroupReplicasTest, ALostReplica0IsWaitedForWhileTheOthersKeepTheirState) {
  StartBoth();
  first_->launcher().Signal(SIGKILL);
  first_->Wait();
  ASSERT_TRUE(Says(*second_, "ranks 2 and 3 keep what they hold (step 2)")) << second_->launcher().err();
  first_ = Start(0);
  ASSERT_EQ(first_->Pids(1).size(), 2u) << first_->launcher().err();
  EXPECT_EQ(second_->Pids(1), before_[1]) << second_->launcher().err();
  FinishBoth();
}

TEST_F(RegroupReplicasTest, AStopOfTheJobReachesThoseThatWaitForALostReplica) {
  StartBoth();
  second_->launcher().Signal(SIGKILL);
  second_->Wait();
  ASSERT_TRUE(Says(*first_, "keep what they hold")) << first_->launcher().err();
  first_->launcher().Signal(SIGTERM);
  EXPECT_EQ(first_->Wait(), 128 + SIGTERM) << first_->launcher().err();
  EXPECT_THAT(first_->Log(0), HasSubstr("asked to stop while parked"));
  for (const pid_t pid : before_[0]) EXPECT_FALSE(IsAlive(pid));
}

// Replica 1 is still asking one that does not answer while the ranks of replica 0 wait.
TEST_F(RegroupReplicasTest, AStopLeavesThoseThatWaitTheirGraceThoughOthersHaveStopped) {
  behaviours_ = {"0=stubborn", "2=silent"};
  policy_ = {{"terminationGracePeriodSeconds", 2}};
  StartBoth();
  ::kill(before_[1].at(1), SIGKILL);
  ASSERT_TRUE(Says(*first_, "ranks 0 and 1 keep what they hold")) << first_->launcher().err();
  const auto start = std::chrono::steady_clock::now();
  first_->launcher().Signal(SIGTERM);
  EXPECT_GT(first_->Wait(), 0) << first_->launcher().err();
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(2)) << first_->launcher().err();
  EXPECT_THAT(first_->Log(1), HasSubstr("asked to stop while parked"));
  EXPECT_THAT(second_->Log(2), HasSubstr("asked to stop while running"));
  EXPECT_GT(second_->Wait(), 0) << second_->launcher().err();
}

TEST_F(RegroupReplicasTest, AFollowerThatIsAskedToStopWhileItWaitsLeaves) {
  StartBoth();
  first_->launcher().Signal(SIGKILL);
  first_->Wait();
  ASSERT_TRUE(Says(*second_, "keep what they hold")) << second_->launcher().err();
  second_->launcher().Signal(SIGTERM);
  EXPECT_EQ(second_->Wait(), 128 + SIGTERM) << second_->launcher().err();
  EXPECT_THAT(second_->Log(2), HasSubstr("asked to stop while parked"));
}

}  // namespace
}  // namespace lockstep::testing
