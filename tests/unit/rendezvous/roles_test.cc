#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/contract/exit_codes.h"
#include "launcher/rendezvous/coordinator.h"
#include "tests/unit/rendezvous/coordinator_testing.h"

// The coordinator of a job of several roles: replica 0 serves, the others work.
namespace lockstep::rendezvous {
namespace {

using State = Coordinator::State;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::Failure;
using ::testing::IsEmpty;
using testing::Words;

class RolesTest : public ::testing::Test {
 protected:
  // Two processes each, running.
  Coordinator Running(bool restarts_alone = true, int replicas = 3) {
    std::vector<bool> ends_job(static_cast<size_t>(replicas), true);
    ends_job[0] = false;
    Coordinator it({.replicas = replicas, .ends_job = ends_job, .restarts_alone = restarts_alone}, now_);
    for (int i = 1; i < replicas; ++i) it.Joined(i, -1);
    for (int i = 0; i < replicas; ++i) (void)it.Ready(i, 2, now_);
    EXPECT_EQ(it.state(), State::kRunning);
    return it;
  }

  Coordinator::Time now_{};
};

TEST_F(RolesTest, TheJobIsDoneWhenItsWorkersAreAndTheOthersAreStopped) {
  Coordinator it = Running();
  EXPECT_THAT(Words(it.Done(1, 0)), IsEmpty());
  EXPECT_THAT(Words(it.Done(2, 0)), ElementsAre("stop 0: done"));
  EXPECT_THAT(Words(it.Stopped(1, 0, 0, now_)), IsEmpty());
  EXPECT_THAT(Words(it.Stopped(2, 0, 0, now_)), IsEmpty());
  // However the server ends.
  EXPECT_THAT(Words(it.Stopped(0, 0, 143, now_)), ElementsAre("finish 0"));
}

TEST_F(RolesTest, AServerThatIsDoneEndsNothing) {
  Coordinator it = Running();
  EXPECT_THAT(Words(it.Done(0, 0)), IsEmpty());
  EXPECT_EQ(it.state(), State::kRunning);
}

TEST_F(RolesTest, AFailureIsAskedAboutWhileTheOthersRun) {
  Coordinator it = Running();
  EXPECT_THAT(Words(it.Failed(0, Failure(1, 3, 1))), ElementsAre("ask about rank 3"));
  EXPECT_EQ(it.state(), State::kRunning);
  EXPECT_THAT(Words(it.RestartAlone(1, 1, milliseconds(0))), ElementsAre("restart 1/1 as 1"));
  EXPECT_THAT(Words(it.RestartAlone(1, 1, milliseconds(0))), ElementsAre("restart 1/1 as 2"));
  EXPECT_THAT(Words(it.RestartAlone(1, 0, milliseconds(0))), ElementsAre("restart 1/0 as 1"));
  // What is no process of it.
  EXPECT_THAT(Words(it.RestartAlone(1, 2, milliseconds(0))), IsEmpty());
}

TEST_F(RolesTest, ALostReplicaReturnsToTheGenerationThatGoesOn) {
  Coordinator it = Running();
  (void)it.RestartAlone(2, 0, milliseconds(0));
  EXPECT_THAT(Words(it.Lost(2, "silent", now_)), ElementsAre("lost 2"));
  EXPECT_EQ(it.state(), State::kRunning);
  EXPECT_FALSE(it.next_deadline().has_value());
  EXPECT_THAT(Words(it.RestartAlone(2, 0, milliseconds(0))), IsEmpty());
  // It is not done, however long it stays away.
  EXPECT_THAT(Words(it.Done(1, 0)), IsEmpty());
  EXPECT_THAT(Words(it.Tick(now_ + seconds(1000))), IsEmpty());
  it.Joined(2, -1);
  // All of its processes are later than each was.
  EXPECT_THAT(Words(it.Ready(2, 2, now_)), ElementsAre("resume 2 as 2"));
  EXPECT_THAT(Words(it.RestartAlone(2, 1, milliseconds(0))), ElementsAre("restart 2/1 as 3"));
  EXPECT_THAT(Words(it.Done(2, 0)), ElementsAre("stop 0: done"));
}

TEST_F(RolesTest, AReplicaThatIsDoneIsNotStartedAgain) {
  Coordinator it = Running();
  (void)it.Done(2, 0);
  (void)it.Lost(2, "gone", now_);
  it.Joined(2, -1);
  EXPECT_THAT(Words(it.Ready(2, 2, now_)), IsEmpty());
  EXPECT_THAT(Words(it.Done(1, 0)), ElementsAre("stop 0: done"));
  (void)it.Stopped(1, 0, 0, now_);
  EXPECT_THAT(Words(it.Stopped(0, 0, 0, now_)), ElementsAre("finish 0"));
}

TEST_F(RolesTest, AReplicaThatReturnsWithOtherProcessesChangesAllRanks) {
  Coordinator it = Running();
  (void)it.Lost(1, "silent", now_);
  it.Joined(1, -1);
  EXPECT_THAT(Words(it.Ready(1, 1, now_)), ElementsAre("stop 0: peer lost"));
  (void)it.Stopped(0, 0, 0, now_);
  EXPECT_THAT(Words(it.Stopped(2, 0, 0, now_)), ElementsAre("start 1: 2 1 2"));
}

TEST_F(RolesTest, OneThatLeavesIsWaitedForToo) {
  Coordinator it = Running();
  EXPECT_THAT(Words(it.Leaves(1, "drained", now_)), ElementsAre("lost 1"));
  EXPECT_EQ(it.state(), State::kRunning);
}

TEST_F(RolesTest, AllRestartTogetherWithoutServers) {
  Coordinator it = Running(/*restarts_alone=*/false);
  EXPECT_THAT(Words(it.Failed(0, Failure(0, 0, 1))), ElementsAre("stop 0: failure"));
  EXPECT_THAT(Words(it.RestartAlone(0, 0, milliseconds(0))), IsEmpty());
}

TEST_F(RolesTest, WhatIsGivenUpEndsForAll) {
  Coordinator it = Running();
  (void)it.Failed(0, Failure(1, 3, 7));
  EXPECT_THAT(Words(it.DecideFinish(7, "used up")), ElementsAre("stop 0: terminate"));
  (void)it.Stopped(0, 0, 143, now_);
  (void)it.Stopped(2, 0, 143, now_);
  EXPECT_THAT(Words(it.Stopped(1, 0, 0, now_)), ElementsAre("finish 7"));
}

}  // namespace
}  // namespace lockstep::rendezvous
