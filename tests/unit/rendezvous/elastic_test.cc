#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launcher/rendezvous/coordinator.h"
#include "tests/unit/rendezvous/coordinator_testing.h"

// Going on with fewer replicas, and growing again.
namespace lockstep::rendezvous {
namespace {

using State = Coordinator::State;
using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::Failure;
using ::testing::IsEmpty;
using testing::MessageOf;
using testing::Words;

class ElasticTest : public ::testing::Test {
 protected:
  Coordinator Make(int replicas, int least, int64_t highest = -1) const {
    return Coordinator({.replicas = replicas,
                        .min_replicas = least,
                        .return_deadline = seconds(300),
                        .elastic_wait = seconds(30),
                        .may_grow = may_grow_,
                        .grow_interval = seconds(60),
                        .grow_settle = seconds(3),
                        .highest_generation = highest},
                       at_);
  }
  Coordinator Running(int replicas, int least) const {
    Coordinator it = Make(replicas, least);
    for (int i = 1; i < replicas; ++i) it.Joined(i, -1);
    for (int i = 0; i < replicas; ++i) (void)it.Ready(i, 2, at_);
    EXPECT_EQ(it.state(), State::kRunning);
    return it;
  }
  // Replica 1 of three is lost and left out: the others run generation 1 since 30 s.
  Coordinator Smaller() const {
    Coordinator it = Running(3, 2);
    (void)it.Lost(1, "gone", at_);
    (void)it.Stopped(0, 0, 137, at_);
    (void)it.Stopped(2, 0, 137, at_);
    EXPECT_THAT(Words(it.Tick(at_ + seconds(30))), ElementsAre("start 1: 2 0 2"));
    return it;
  }
  // Every deadline that it names, up to `end`.
  static std::vector<std::string> TickUntil(Coordinator& it, Coordinator::Time end) {
    std::vector<std::string> words;
    for (int i = 0; i < 100; ++i) {
      const auto next = it.next_deadline();
      if (!next || *next > end) return words;
      for (const std::string& word : Words(it.Tick(*next))) words.push_back(word);
    }
    ADD_FAILURE() << "it asks to be called for ever";
    return words;
  }
  // The same, being stopped because replica 1 is here again.
  Coordinator Growing() const {
    Coordinator it = Smaller();
    it.Joined(1, 0);
    (void)it.Ready(1, 2, at_ + seconds(100));
    EXPECT_THAT(TickUntil(it, at_ + seconds(200)), ElementsAre("stop 1: resize"));
    return it;
  }

  const Coordinator::Time at_{seconds(1000)};
  bool may_grow_ = true;
};

TEST_F(ElasticTest, AReplicaThatStaysAwayIsLeftOut) {
  Coordinator it = Running(3, 2);
  EXPECT_THAT(Words(it.Lost(1, "gone", at_)), ElementsAre("lost 1", "stop 0: peer lost"));
  (void)it.Stopped(0, 0, 137, at_);
  EXPECT_THAT(Words(it.Stopped(2, 0, 137, at_)), IsEmpty());
  EXPECT_EQ(it.next_deadline(), at_ + seconds(30));
  EXPECT_THAT(Words(it.Tick(at_ + seconds(29))), IsEmpty());
  EXPECT_THAT(Words(it.Tick(at_ + seconds(30))), ElementsAre("start 1: 2 0 2"));
  EXPECT_THAT(Words(it.Done(0, 1)), IsEmpty());
  EXPECT_THAT(Words(it.Done(2, 1)), ElementsAre("finish 0"));
}

TEST_F(ElasticTest, AReplicaThatReturnsInTimeIsNotLeftOut) {
  Coordinator it = Running(3, 1);
  (void)it.Lost(1, "gone", at_);
  (void)it.Stopped(0, 0, 137, at_);
  (void)it.Stopped(2, 0, 137, at_);
  it.Joined(1, 0);
  EXPECT_THAT(Words(it.Ready(1, 2, at_ + seconds(12))), ElementsAre("start 1: 2 2 2"));
}

TEST_F(ElasticTest, FewerThanTheLeastAreNotEnough) {
  Coordinator it = Running(3, 2);
  (void)it.Lost(1, "gone", at_);
  (void)it.Lost(2, "gone", at_ + seconds(1));
  (void)it.Stopped(0, 0, 137, at_ + seconds(1));
  EXPECT_THAT(TickUntil(it, at_ + seconds(299)), IsEmpty());
  it.Joined(2, 0);
  EXPECT_THAT(Words(it.Ready(2, 2, at_ + seconds(299))), ElementsAre("start 1: 2 0 2"));

  Coordinator never = Running(3, 2);
  (void)never.Lost(1, "gone", at_);
  (void)never.Lost(2, "gone", at_ + seconds(1));
  (void)never.Stopped(0, 0, 137, at_ + seconds(1));
  EXPECT_THAT(TickUntil(never, at_ + seconds(300)), IsEmpty()) << "replica 2 may still come";
  EXPECT_THAT(TickUntil(never, at_ + seconds(301)), ElementsAre("finish 12"));
}

TEST_F(ElasticTest, TheFirstStartWaitsLonger) {
  Coordinator it = Make(3, 2);
  it.Joined(2, -1);
  (void)it.Ready(0, 2, at_);
  (void)it.Ready(2, 2, at_);
  EXPECT_THAT(TickUntil(it, at_ + seconds(299)), IsEmpty());
  EXPECT_THAT(TickUntil(it, at_ + seconds(300)), ElementsAre("start 0: 2 0 2"));
}

// Replica 0 itself was lost, and the survivors say that the job has run before.
TEST_F(ElasticTest, ANewReplica0WaitsAsAtARestart) {
  Coordinator it = Make(3, 2);
  it.Joined(2, 4);
  (void)it.Ready(0, 2, at_);
  (void)it.Ready(2, 2, at_);
  EXPECT_THAT(TickUntil(it, at_ + seconds(30)), ElementsAre("start 5: 2 0 2"));
}

TEST_F(ElasticTest, ReplicaZeroAloneMayBeEnough) {
  Coordinator it = Running(2, 1);
  (void)it.Lost(1, "gone", at_);
  (void)it.Stopped(0, 0, 137, at_);
  EXPECT_THAT(TickUntil(it, at_ + seconds(30)), ElementsAre("start 1: 2 0"));
  EXPECT_THAT(Words(it.Done(0, 1)), ElementsAre("finish 0"));
}

TEST_F(ElasticTest, WhoWasLeftOutIsNotWaitedForAgain) {
  Coordinator it = Smaller();
  const auto later = at_ + seconds(2000);
  (void)it.Failed(1, Failure(0, 0, 1));
  (void)it.Stopped(0, 1, 1, later);
  EXPECT_THAT(Words(it.Stopped(2, 1, 1, later)), ElementsAre("ask about rank 0"));
  EXPECT_THAT(Words(it.DecideRestart({}, later)), ElementsAre("start 2: 2 0 2"));
}

TEST_F(ElasticTest, AReturnMakesTheJobGrow) {
  Coordinator it = Smaller();
  const auto start = at_ + seconds(30);
  it.Joined(1, 0);
  EXPECT_THAT(Words(it.Ready(1, 5, start + seconds(10))), IsEmpty());
  EXPECT_EQ(it.next_deadline(), start + seconds(60)) << "the smaller generation has its time";
  EXPECT_THAT(Words(it.Tick(start + seconds(59))), IsEmpty());
  const auto grow = it.Tick(start + seconds(60));
  EXPECT_THAT(Words(grow), ElementsAre("stop 1: resize"));
  EXPECT_EQ(MessageOf(grow), "replica 1 is here: the job goes on with 3 replicas instead of 2");
  EXPECT_THAT(Words(it.Stopped(0, 1, 75, start + seconds(61))), IsEmpty());
  EXPECT_THAT(Words(it.Stopped(2, 1, 75, start + seconds(61))), ElementsAre("start 2: 2 5 2"));
}

TEST_F(ElasticTest, ANewcomerHasToStayBeforeTheOthersAreStopped) {
  Coordinator it = Smaller();
  const auto later = at_ + seconds(500);
  for (int i = 0; i < 3; ++i) {
    it.Joined(1, 0);
    (void)it.Ready(1, 2, later + seconds(10 * i));
    EXPECT_THAT(TickUntil(it, later + seconds(10 * i + 2)), IsEmpty());
    EXPECT_THAT(Words(it.Lost(1, "gone again", later + seconds(10 * i + 2))), ElementsAre("lost 1"));
    EXPECT_THAT(TickUntil(it, later + seconds(10 * i + 9)), IsEmpty());
    EXPECT_EQ(it.state(), State::kRunning);
  }
}

TEST_F(ElasticTest, AJobThatWouldLoseItsWorkGrowsAtTheNextRestartOnly) {
  may_grow_ = false;
  Coordinator it = Smaller();
  it.Joined(1, 0);
  (void)it.Ready(1, 2, at_ + seconds(100));
  EXPECT_EQ(it.next_deadline(), std::nullopt);
  EXPECT_THAT(Words(it.Tick(at_ + seconds(1000))), IsEmpty());
  (void)it.Failed(1, Failure(0, 0, 1));
  (void)it.Stopped(0, 1, 1, at_ + seconds(1000));
  (void)it.Stopped(2, 1, 1, at_ + seconds(1000));
  EXPECT_THAT(Words(it.DecideRestart({}, at_ + seconds(1000))), ElementsAre("start 2: 2 2 2"));
}

TEST_F(ElasticTest, NobodyIsStoppedForGrowthWhenSomeAreDone) {
  Coordinator it = Smaller();
  it.Joined(1, 0);
  (void)it.Ready(1, 2, at_ + seconds(100));
  (void)it.Done(2, 1);
  EXPECT_THAT(TickUntil(it, at_ + seconds(1000)), IsEmpty());
  EXPECT_THAT(Words(it.Done(0, 1)), ElementsAre("finish 0"));
}

TEST_F(ElasticTest, RanksThatAreDoneWhenAskedToStopEndTheJob) {
  Coordinator it = Growing();
  EXPECT_THAT(Words(it.Stopped(0, 1, 0, at_ + seconds(200))), IsEmpty());
  EXPECT_THAT(Words(it.Stopped(2, 1, 0, at_ + seconds(200))), ElementsAre("finish 0"));
}

TEST_F(ElasticTest, FailuresOfRanksThatAreStoppedForGrowthAreNone) {
  Coordinator it = Growing();
  EXPECT_THAT(Words(it.Failed(1, Failure(2, 2, 1))), IsEmpty());
  EXPECT_THAT(Words(it.Stopped(0, 1, 75, at_ + seconds(200))), IsEmpty());
  EXPECT_THAT(Words(it.Stopped(2, 1, 1, at_ + seconds(200))), ElementsAre("start 2: 2 2 2"));
}

// The newcomer goes again while the others are being stopped for it.
TEST_F(ElasticTest, ANewcomerLostDuringGrowthIsWaitedForOnceMore) {
  Coordinator it = Growing();
  const auto now = at_ + seconds(201);
  EXPECT_THAT(Words(it.Lost(1, "gone", now)), ElementsAre("lost 1"));
  (void)it.Stopped(0, 1, 75, now);
  EXPECT_THAT(Words(it.Stopped(2, 1, 75, now)), IsEmpty());
  EXPECT_THAT(TickUntil(it, now + seconds(30)), ElementsAre("start 2: 2 0 2"));
}

TEST_F(ElasticTest, AReplicaThatIsAskedToStopTakesNoWorkWithIt) {
  Coordinator it = Running(3, 2);
  EXPECT_THAT(Words(it.Leaves(2, "asked to stop", at_)), ElementsAre("lost 2", "stop 0: resize"));
  EXPECT_THAT(Words(it.Failed(0, Failure(1, 2, 11))), IsEmpty()) << "it misses the one that left";
  (void)it.Stopped(0, 0, 75, at_);
  EXPECT_THAT(Words(it.Stopped(1, 0, 75, at_)), IsEmpty());
  EXPECT_THAT(TickUntil(it, at_ + seconds(30)), ElementsAre("start 1: 2 2 0"));
}

TEST_F(ElasticTest, TheEndOfTheJobComesBeforeGrowth) {
  Coordinator it = Growing();
  EXPECT_THAT(Words(it.RequestStop("SIGTERM", 143)), ElementsAre("stop 1: terminate"));
  (void)it.Stopped(0, 1, 75, at_ + seconds(200));
  EXPECT_THAT(Words(it.Stopped(2, 1, 75, at_ + seconds(200))), ElementsAre("finish 75"));
}

// Whatever replicas 1 to 3 do, in whatever order: a generation never has fewer than the least, nor one that
// is not here, and in the end, all being back, it has all.
TEST_F(ElasticTest, EveryOrderOfComingAndGoingEndsWithAll) {
  std::vector<int> order{1, 1, 2, 2, 3, 3};  // each leaves, then returns
  do {
    Coordinator it = Running(4, 2);
    auto now = at_;
    const auto check = [&](const Coordinator::Actions& actions) {
      for (const auto& action : actions) {
        const auto* start = std::get_if<Coordinator::Start>(&action);
        if (start == nullptr) continue;
        int members = 0;
        for (int i = 0; i < 4; ++i) {
          if (start->processes[i] == 0) continue;
          ++members;
          EXPECT_TRUE(it.present(i));
        }
        EXPECT_GE(members, 2);
      }
      if (it.state() != State::kStopping) return;
      for (int i = 0; i < 4; ++i) {
        if (it.present(i)) (void)it.Stopped(i, it.generation(), 75, now);
      }
    };
    for (const int replica : order) {
      now += seconds(20);
      if (it.present(replica)) {
        check(it.Lost(replica, "gone", now));
      } else {
        it.Joined(replica, it.generation());
        check(it.Ready(replica, 2, now));
      }
      while (const auto next = it.next_deadline()) {
        if (*next > now) break;
        check(it.Tick(*next));
      }
      ASSERT_NE(it.state(), State::kFinished);
    }
    for (int i = 0; i < 100 && it.next_deadline(); ++i) check(it.Tick(*it.next_deadline()));
    EXPECT_EQ(it.state(), State::kRunning);
    EXPECT_THAT(Words(it.Failed(it.generation(), Failure(0, 0, 1))), ::testing::SizeIs(1));
    Coordinator::Actions last;
    for (int i = 0; i < 4; ++i) last = it.Stopped(i, it.generation(), 1, now);
    EXPECT_THAT(Words(last), ElementsAre("ask about rank 0")) << "all four ran";
  } while (std::next_permutation(order.begin(), order.end()));
}

}  // namespace
}  // namespace lockstep::rendezvous
