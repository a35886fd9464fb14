#include "launcher/rendezvous/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "common/contract/exit_codes.h"
#include "tests/unit/rendezvous/coordinator_testing.h"

namespace lockstep::rendezvous {
namespace {

using State = Coordinator::State;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::Failure;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MessageOf;
using testing::Words;

class CoordinatorTest : public ::testing::Test {
 protected:
  Coordinator Make(int replicas, int64_t highest = -1) {
    return Coordinator({.replicas = replicas, .return_deadline = seconds(300), .highest_generation = highest},
                       now_);
  }
  // All here, two processes each, running.
  Coordinator Running(int replicas) {
    Coordinator it = Make(replicas);
    for (int i = 1; i < replicas; ++i) it.Joined(i, -1);
    for (int i = 0; i < replicas; ++i) (void)it.Ready(i, 2, now_);
    EXPECT_EQ(it.state(), State::kRunning);
    return it;
  }

  Coordinator::Time now_{};
};

TEST_F(CoordinatorTest, OneReplicaStartsAtOnceAndFinishes) {
  Coordinator it = Make(1);
  EXPECT_FALSE(it.next_deadline().has_value());
  EXPECT_THAT(Words(it.Ready(0, 4, now_)), ElementsAre("start 0: 4"));
  EXPECT_THAT(Words(it.Done(0, 0)), ElementsAre("finish 0"));
  EXPECT_EQ(it.state(), State::kFinished);
}

TEST_F(CoordinatorTest, StartsWhenAllAreReadyInWhateverOrder) {
  std::vector<int> order{0, 1, 2};
  do {
    Coordinator it = Make(3);
    it.Joined(1, -1);
    it.Joined(2, -1);
    EXPECT_THAT(Words(it.Ready(order[0], order[0] + 1, now_)), IsEmpty());
    EXPECT_THAT(Words(it.Ready(order[1], order[1] + 1, now_)), IsEmpty());
    EXPECT_THAT(Words(it.Ready(order[2], order[2] + 1, now_)), ElementsAre("start 0: 1 2 3"));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(CoordinatorTest, GenerationIsTheHighestSeenPlusOne) {
  Coordinator it = Make(3, 4);
  it.Joined(1, 9);
  it.Joined(2, -1);
  (void)it.Ready(0, 1, now_);
  (void)it.Ready(1, 1, now_);
  EXPECT_THAT(Words(it.Ready(2, 1, now_)), ElementsAre("start 10: 1 1 1"));
}

TEST_F(CoordinatorTest, FailureStopsAllAsksTheOwnerAndStartsTheNextGeneration) {
  Coordinator it = Running(2);
  EXPECT_THAT(Words(it.Failed(0, Failure(1, 3, 1))), ElementsAre("stop 0: failure"));
  EXPECT_THAT(Words(it.Stopped(1, 0, 1, now_)), IsEmpty());
  EXPECT_THAT(Words(it.Stopped(0, 0, 0, now_)), ElementsAre("ask about rank 3"));
  EXPECT_THAT(Words(it.DecideRestart({}, now_)), ElementsAre("start 1: 2 2"));
}

TEST_F(CoordinatorTest, RestartWaitsForItsDelay) {
  Coordinator it = Running(1);
  (void)it.Failed(0, Failure(0, 0, 1));
  EXPECT_THAT(Words(it.Stopped(0, 0, 1, now_)), ElementsAre("ask about rank 0"));
  EXPECT_THAT(Words(it.DecideRestart(seconds(2), now_)), IsEmpty());
  ASSERT_TRUE(it.next_deadline().has_value());
  EXPECT_EQ(*it.next_deadline(), now_ + seconds(2));
  EXPECT_THAT(Words(it.Tick(now_ + milliseconds(1999))), IsEmpty());
  EXPECT_THAT(Words(it.Tick(now_ + seconds(2))), ElementsAre("start 1: 2"));
}

TEST_F(CoordinatorTest, DelayThatPassesWhileAReplicaIsMissingIsNotWaitedForAgain) {
  Coordinator it = Running(2);
  (void)it.Failed(0, Failure(0, 0, 1));
  (void)it.Stopped(0, 0, 1, now_);
  (void)it.Stopped(1, 0, 0, now_);
  EXPECT_THAT(Words(it.Lost(1, "gone", now_)), ElementsAre("lost 1"));
  EXPECT_THAT(Words(it.DecideRestart(seconds(2), now_)), IsEmpty());
  EXPECT_THAT(Words(it.Tick(now_ + seconds(2))), IsEmpty());
  EXPECT_EQ(*it.next_deadline(), now_ + seconds(300));
  it.Joined(1, 0);
  EXPECT_THAT(Words(it.Ready(1, 2, now_ + seconds(9))), ElementsAre("start 1: 2 2"));
}

TEST_F(CoordinatorTest, OwnerMayFinishInsteadOfRestarting) {
  Coordinator it = Running(2);
  (void)it.Failed(0, Failure(1, 2, 3));
  (void)it.Stopped(0, 0, 0, now_);
  (void)it.Stopped(1, 0, 0, now_);
  const auto actions = it.DecideFinish(3, "rank 2: bad data");
  EXPECT_THAT(Words(actions), ElementsAre("finish 3"));
  EXPECT_EQ(MessageOf(actions), "rank 2: bad data");
  EXPECT_THAT(Words(it.DecideRestart({}, now_)), IsEmpty());
}

struct CulpritCase {
  const char* name;
  std::vector<FailureReport> before;  // a launcher is lost
  bool lost;
  std::vector<FailureReport> after;
  const char* outcome;
};

TEST_F(CoordinatorTest, TheFailureThatCausedTheOthersIsTheOneReported) {
  const int lost = contract::kExitCollectiveLost;
  for (const CulpritCase& c : std::vector<CulpritCase>{
           {"the first", {Failure(0, 0, 1), Failure(1, 3, 1)}, false, {}, "ask about rank 0"},
           {"not one that lost its peers",
            {Failure(0, 0, lost), Failure(1, 3, 137)},
            false,
            {},
            "ask about rank 3"},
           {"not one that found no peers",
            {Failure(0, 0, contract::kExitRendezvous), Failure(1, 3, 139)},
            false,
            {},
            "ask about rank 3"},
           {"a program's 11 means nothing",
            {Failure(0, 0, 11, false), Failure(1, 3, 1)},
            false,
            {},
            "ask about rank 0"},
           {"if none else", {Failure(0, 1, lost), Failure(1, 3, lost)}, false, {}, "ask about rank 1"},
           {"before a launcher was lost", {Failure(0, 1, 3)}, true, {Failure(0, 0, 1)}, "ask about rank 1"},
           {"lost peers, then the launcher", {Failure(0, 1, lost)}, true, {}, "gather"},
           {"after a launcher was lost", {}, true, {Failure(0, 1, 1)}, "gather"}}) {
    SCOPED_TRACE(c.name);
    Coordinator it = Running(3);
    for (const FailureReport& failure : c.before) (void)it.Failed(0, failure);
    if (c.lost) (void)it.Lost(2, "gone", now_);
    for (const FailureReport& failure : c.after) (void)it.Failed(0, failure);
    Coordinator::Actions last;
    for (int i = 0; i < 3; ++i) {
      if (it.present(i)) last = it.Stopped(i, 0, 1, now_);
    }
    if (std::string(c.outcome) == "gather") {
      EXPECT_EQ(it.state(), State::kGathering);
      EXPECT_THAT(Words(last), IsEmpty());
    } else {
      EXPECT_THAT(Words(last), ElementsAre(c.outcome));
    }
  }
}

TEST_F(CoordinatorTest, LostLauncherStopsTheOthersAndItsReturnStartsTheNextGeneration) {
  Coordinator it = Running(3);
  EXPECT_THAT(Words(it.Lost(1, "silent for 4 s", now_)), ElementsAre("lost 1", "stop 0: peer lost"));
  EXPECT_THAT(Words(it.Stopped(0, 0, 137, now_)), IsEmpty());
  EXPECT_THAT(Words(it.Stopped(2, 0, 137, now_)), IsEmpty());
  EXPECT_TRUE(it.MayJoin(1).ok());
  it.Joined(1, 0);
  EXPECT_THAT(Words(it.Ready(1, 5, now_)), ElementsAre("start 1: 2 5 2"));
}

// Replica 1 and 2 are lost, return and become ready, and the survivors stop, in every order in which that can
// happen: there is exactly one next generation, and only when all have done their part.
TEST_F(CoordinatorTest, EveryOrderOfLossStopAndReturnEndsInOneNextGeneration) {
  enum Event { kLose1, kLose2, kStop0, kReturn1, kReturn2, kReady1, kReady2 };
  std::vector<int> order{kLose1, kLose2, kStop0, kReturn1, kReturn2, kReady1, kReady2};
  int tried = 0;
  do {
    const auto at = [&](int event) { return std::find(order.begin(), order.end(), event) - order.begin(); };
    if (at(kLose1) > at(kReturn1) || at(kReturn1) > at(kReady1)) continue;
    if (at(kLose2) > at(kReturn2) || at(kReturn2) > at(kReady2)) continue;
    if (at(kStop0) < std::min(at(kLose1), at(kLose2))) continue;  // nobody asked it yet
    ++tried;
    Coordinator it = Running(3);
    int starts = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      Coordinator::Actions actions;
      switch (order[i]) {
        case kLose1:
          actions = it.Lost(1, "gone", now_);
          break;
        case kLose2:
          actions = it.Lost(2, "gone", now_);
          break;
        case kStop0:
          actions = it.Stopped(0, 0, 1, now_);
          break;
        case kReturn1:
          ASSERT_TRUE(it.MayJoin(1).ok());
          it.Joined(1, 0);
          break;
        case kReturn2:
          ASSERT_TRUE(it.MayJoin(2).ok());
          it.Joined(2, 0);
          break;
        case kReady1:
          actions = it.Ready(1, 2, now_);
          break;
        case kReady2:
          actions = it.Ready(2, 2, now_);
          break;
      }
      for (const std::string& word : Words(actions)) starts += word.starts_with("start") ? 1 : 0;
      EXPECT_EQ(starts, i + 1 < order.size() ? 0 : 1);
    }
    EXPECT_EQ(it.generation(), 1);
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_GT(tried, 100);
}

TEST_F(CoordinatorTest, ReplicaLostAfterItsRanksAreDoneIsNotMissed) {
  Coordinator it = Running(2);
  EXPECT_THAT(Words(it.Done(1, 0)), IsEmpty());
  EXPECT_THAT(Words(it.Lost(1, "gone", now_)), ElementsAre("lost 1"));
  EXPECT_EQ(it.state(), State::kRunning);
  EXPECT_THAT(Words(it.Done(0, 0)), ElementsAre("finish 0"));
}

TEST_F(CoordinatorTest, ReplicaLostWhenDoneIsMissedFromTheNextFailureOn) {
  Coordinator it = Running(2);
  (void)it.Done(1, 0);
  (void)it.Lost(1, "gone", now_);
  const auto later = now_ + seconds(1000);
  EXPECT_THAT(Words(it.Failed(0, Failure(0, 0, 1))), ElementsAre("stop 0: failure"));
  EXPECT_THAT(Words(it.Stopped(0, 0, 1, later)), ElementsAre("ask about rank 0"));
  EXPECT_THAT(Words(it.DecideRestart({}, later)), IsEmpty());
  EXPECT_EQ(*it.next_deadline(), later + seconds(300));
}

TEST_F(CoordinatorTest, MissingReplicaEndsTheJobAtTheDeadlineByName) {
  Coordinator it = Make(4);
  it.Joined(2, -1);
  EXPECT_THAT(Words(it.Tick(now_ + seconds(299))), IsEmpty());
  const auto actions = it.Tick(now_ + seconds(300));
  EXPECT_THAT(Words(actions), ElementsAre("finish 12"));
  EXPECT_EQ(MessageOf(actions), "replicas 1, 3 did not come within 300 s");

  Coordinator later = Running(2);
  (void)later.Lost(1, "gone", now_ + seconds(50));
  (void)later.Stopped(0, 0, 1, now_ + seconds(51));
  EXPECT_EQ(*later.next_deadline(), now_ + seconds(350));
  EXPECT_EQ(MessageOf(later.Tick(now_ + seconds(350))), "replica 1 did not return within 300 s");
}

TEST_F(CoordinatorTest, SecondLauncherOfAReplicaIsRefusedWhileTheFirstIsHere) {
  Coordinator it = Running(2);
  EXPECT_EQ(it.MayJoin(1).code(), StatusCode::kUnavailable);
  EXPECT_EQ(it.MayJoin(0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(it.MayJoin(2).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(it.MayJoin(-1).code(), StatusCode::kInvalidArgument);
  (void)it.Lost(1, "gone", now_);
  EXPECT_TRUE(it.MayJoin(1).ok());
}

TEST_F(CoordinatorTest, WordsFromAnOldGenerationChangeNothing) {
  Coordinator it = Running(2);
  (void)it.Failed(0, Failure(0, 0, 1));
  (void)it.Stopped(0, 0, 1, now_);
  (void)it.Stopped(1, 0, 1, now_);
  ASSERT_THAT(Words(it.DecideRestart({}, now_)), ElementsAre("start 1: 2 2"));
  EXPECT_THAT(Words(it.Failed(0, Failure(1, 2, 1))), IsEmpty());
  EXPECT_THAT(Words(it.Done(0, 0)), IsEmpty());
  EXPECT_THAT(Words(it.Done(1, 0)), IsEmpty());
  EXPECT_THAT(Words(it.Stopped(1, 0, 0, now_)), IsEmpty());
  EXPECT_EQ(it.state(), State::kRunning);
}

TEST_F(CoordinatorTest, StopOfTheJobStopsAllAndEndsWithWhatTheRanksCameTo) {
  Coordinator it = Running(2);
  EXPECT_THAT(Words(it.RequestStop("SIGTERM", 143)), ElementsAre("stop 0: terminate"));
  EXPECT_THAT(Words(it.Stopped(0, 0, 0, now_)), IsEmpty());
  EXPECT_THAT(Words(it.Stopped(1, 0, 75, now_)), ElementsAre("finish 75"));
}

TEST_F(CoordinatorTest, StopOfAJobThatRunsNothingEndsAtOnce) {
  Coordinator it = Make(2);
  EXPECT_THAT(Words(it.RequestStop("SIGTERM", 143)), ElementsAre("finish 143"));
  EXPECT_THAT(Words(it.RequestStop("SIGTERM", 143)), IsEmpty());
}

TEST_F(CoordinatorTest, StopOfTheJobWhileItRestartsWins) {
  Coordinator it = Running(2);
  (void)it.Failed(0, Failure(0, 0, 1));
  EXPECT_THAT(Words(it.RequestStop("SIGTERM", 143)), ElementsAre("stop 0: terminate"));
  EXPECT_THAT(Words(it.RequestStop("SIGTERM", 143)), IsEmpty());
  EXPECT_THAT(Words(it.Stopped(0, 0, 143, now_)), IsEmpty());
  EXPECT_THAT(Words(it.Lost(1, "gone", now_)), ElementsAre("lost 1", "finish 143"));
}

TEST_F(CoordinatorTest, FinishDecidedWhileRanksRunStopsThemFirst) {
  Coordinator it = Running(2);
  EXPECT_THAT(Words(it.DecideFinish(3, "deadline of the job")), ElementsAre("stop 0: terminate"));
  (void)it.Stopped(0, 0, 75, now_);
  const auto actions = it.Stopped(1, 0, 75, now_);
  EXPECT_THAT(Words(actions), ElementsAre("finish 3"));
  EXPECT_EQ(MessageOf(actions), "deadline of the job");
}

}  // namespace
}  // namespace lockstep::rendezvous
