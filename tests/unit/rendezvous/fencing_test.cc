#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/contract/authentication.h"
#include "common/contract/exit_codes.h"
#include "common/contract/store_client.h"
#include "launcher/rendezvous/membership.h"
#include "launcher/rendezvous/store_server.h"
#include "tests/unit/rendezvous/membership_testing.h"

// Pods of the same place: which of them takes part, and what the other is told.
namespace lockstep::rendezvous {
namespace {

using testing::Clock;
using ::testing::HasSubstr;
using testing::Launcher;
using testing::milliseconds;

constexpr char kStoreOfPod[] = "0f3c2f0a5d4e4b7c9a1b2c3d4e5f6071";
constexpr char kPod[] = "0f3c2f0a-5d4e-4b7c-9a1b-2c3d4e5f6071";

class FencingTest : public testing::MembershipTest {
 protected:
  static Adjust In(const std::string& pod, int64_t generation = -1) {
    return [=](Membership::Options& options) {
      options.instance = pod;
      options.highest_generation = generation;
      options.silence = milliseconds(300);
    };
  }
  // Until nothing more is on its way.
  static void DriveFor(const std::vector<Launcher*>& launchers, Clock::duration duration) {
    const auto end = testing::In(duration);
    (void)Drive(
        launchers, [&] { return Clock::now() >= end; }, duration * 2);
  }
};

TEST_F(FencingTest, TheStoreIsKnownByItsPodsUid) {
  auto leader = Lead(1, In(kPod));
  leader->membership->ReportReady(1);
  ASSERT_TRUE(Drive({leader.get()}, [&] { return leader->generation() == 0; }));
  EXPECT_EQ(leader->starts[0].store_id, kStoreOfPod);
}

TEST_F(FencingTest, NamesThatAreNoUuidMakeAnIdToo) {
  EXPECT_EQ(contract::ToHex(StoreIdOf(kPod)), kStoreOfPod);
  EXPECT_EQ(StoreIdOf("mirror").size(), contract::kStoreIdBytes);
  EXPECT_NE(StoreIdOf("mirror"), StoreIdOf("error"));
}

TEST_F(FencingTest, ARankOfAnotherStoreIsRefusedByName) {
  auto leader = Lead(1, In(kPod));
  leader->membership->ReportReady(1);
  ASSERT_TRUE(Drive({leader.get()}, [&] { return leader->generation() == 0; }));
  Status refused;
  std::atomic<bool> done{false};
  std::thread rank([&] {
    refused = contract::StoreClient::Connect({.address = address_,
                                              .token = token_,
                                              .job = "mnist",
                                              .generation = 0,
                                              .rank = 0,
                                              .store_id = std::string(32, 'a'),
                                              .deadline = testing::In(testing::kPatience)})
                  .status();
    done = true;
  });
  EXPECT_TRUE(Drive({leader.get()}, [&] { return done.load(); }));
  rank.join();
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(refused.message(), HasSubstr(kStoreOfPod));
}

TEST_F(FencingTest, APodThatWasReplacedIsToldToGoWhenItReturns) {
  auto leader = Lead(2, In("pod-0"));
  auto old = Make(1, 2, In("pod-old"));
  for (Launcher* it : {leader.get(), old.get()}) it->membership->ReportReady(1);
  ASSERT_TRUE(Drive({leader.get(), old.get()}, [&] { return old->generation() == 0; }));
  // Cut off, and replaced.
  auto next = Make(1, 2, In("pod-new"));
  next->membership->ReportReady(1);
  ASSERT_TRUE(Drive({leader.get(), next.get()}, [&] { return next->generation() == 1; }));
  ASSERT_TRUE(Drive({leader.get(), next.get(), old.get()}, [&] { return old->finish.has_value(); }));
  EXPECT_EQ(old->finish, contract::kExitSuperseded);
  EXPECT_THAT(old->finish_message, HasSubstr("this one was replaced, and must end"));
  EXPECT_TRUE(next->stops.empty());

  // Nor is its place free for it when its successor is away for a moment.
  next.reset();
  auto again = Make(1, 2, In("pod-old", 0));
  ASSERT_TRUE(Drive({leader.get(), again.get()}, [&] { return again->finish.has_value(); }));
  EXPECT_EQ(again->finish, contract::kExitSuperseded);
}

TEST_F(FencingTest, AnAgentThatIsStartedAgainInItsPodTakesItsPlaceAtOnce) {
  auto leader = Lead(2, In("pod-0"));
  auto first = Make(1, 2, In("pod-1"));
  for (Launcher* it : {leader.get(), first.get()}) it->membership->ReportReady(1);
  ASSERT_TRUE(Drive({leader.get(), first.get()}, [&] { return first->generation() == 0; }));
  auto second = Make(1, 2, In("pod-1", 0));  // the first's connection is still open
  second->membership->ReportReady(1);
  ASSERT_TRUE(Drive({leader.get(), second.get()}, [&] { return second->generation() == 1; }));
}

// A new replica 0 knows nothing of who replaced whom.
TEST_F(FencingTest, OfTwoPodsTheOneThatHasSeenTheLaterGenerationStays) {
  auto leader = Lead(3, In("pod-0b"));
  auto older = Make(1, 3, In("pod-old", 4));
  ASSERT_TRUE(Drive({leader.get(), older.get()}, [&] { return leader->joined.size() == 1; }));
  auto newer = Make(1, 3, In("pod-new", 6));
  ASSERT_TRUE(Drive({leader.get(), older.get(), newer.get()}, [&] { return older->finish.has_value(); }));
  EXPECT_EQ(older->finish, contract::kExitSuperseded);
  EXPECT_FALSE(newer->finish.has_value());

  auto late = Make(1, 3, In("pod-older", 2));
  ASSERT_TRUE(Drive({leader.get(), newer.get(), late.get()}, [&] { return late->finish.has_value(); }));
  EXPECT_EQ(late->finish, contract::kExitSuperseded);
}

// Two replicas 0, the old one in a partition; the followers move on to the new one.
class TwoLeadersTest : public FencingTest {
 protected:
  void SetUp() override {
    old_ = Lead(2, In("pod-0a"));
    follower_ = Make(1, 2, In("pod-1"));
    for (Launcher* it : {old_.get(), follower_.get()}) it->membership->ReportReady(1);
    ASSERT_TRUE(Drive({old_.get(), follower_.get()}, [&] { return follower_->generation() == 0; }));
  }
  std::unique_ptr<Launcher> old_, follower_;
};

TEST_F(TwoLeadersTest, TheOldOneEndsWhenItHearsOfALaterGeneration) {
  // The follower's successor has been with another replica 0 meanwhile.
  auto later = Make(1, 2, In("pod-1", 3));
  ASSERT_TRUE(Drive({old_.get(), follower_.get(), later.get()}, [&] { return old_->finish.has_value(); }));
  EXPECT_EQ(old_->finish, contract::kExitSuperseded);
  EXPECT_THAT(old_->finish_message, HasSubstr("has seen generation 3"));
  // The others are not told that the job is over.
  DriveFor({follower_.get(), later.get()}, milliseconds(300));
  EXPECT_FALSE(follower_->finish.has_value());
  EXPECT_FALSE(later->finish.has_value());
}

TEST_F(TwoLeadersTest, AReplica0WhoseRanksWereRefusedLeavesItsFollowersToTheNewOne) {
  old_->membership->Withdraw(contract::kExitSuperseded, "another run writes here");
  ASSERT_TRUE(Drive({old_.get(), follower_.get()},
                    [&] { return old_->finish.has_value() && !follower_->stops.empty(); }));
  EXPECT_EQ(old_->finish, contract::kExitSuperseded);
  EXPECT_EQ(follower_->stops[0].cause, StopCause::kPeerLost);
  old_.reset();
  auto next = Lead(2, In("pod-0b"));
  next->membership->ReportReady(1);
  ASSERT_TRUE(Drive({next.get(), follower_.get()}, [&] { return follower_->generation() == 1; }));
  EXPECT_FALSE(follower_->finish.has_value());
}

TEST_F(TwoLeadersTest, AFollowerDoesNotGoBackToTheOldOne) {
  old_.reset();
  auto next = Lead(2, In("pod-0b"));
  next->membership->ReportReady(1);
  ASSERT_TRUE(Drive({next.get(), follower_.get()}, [&] { return follower_->generation() == 1; }));
  // The new one is away, and under the same address the old one answers again.
  next.reset();
  auto back = Lead(2, In("pod-0a"));
  back->membership->ReportReady(1);
  DriveFor({back.get(), follower_.get()}, milliseconds(500));
  EXPECT_TRUE(back->joined.empty());
  back.reset();
  auto again = Lead(2, In("pod-0b"));
  again->membership->ReportReady(1);
  ASSERT_TRUE(Drive({again.get(), follower_.get()}, [&] { return follower_->generation() == 2; }));
}

TEST_F(FencingTest, ASmallerGenerationHasContiguousRanksAndGrowsAgain) {
  const auto elastic = [](Membership::Options& options) {
    options.min_replicas = 2;
    options.elastic_wait = milliseconds(100);
    options.grow_interval = milliseconds(0);
  };
  auto all = Running(3, elastic);
  all[1].reset();
  ASSERT_TRUE(Drive({all[0].get(), all[2].get()}, [&] { return all[2]->generation() == 1; }));
  const GenerationStart& smaller = all[2]->starts.back();
  EXPECT_EQ(smaller.world_size, 4);
  EXPECT_EQ(smaller.rank_offset, 2);
  ASSERT_EQ(smaller.replicas.size(), 2u);
  EXPECT_EQ(smaller.replicas[1].replica, 2);

  for (auto* it : {all[0].get(), all[2].get()}) it->stop_exit_code = contract::kExitCheckpointed;
  all[1] = Make(1, 3, elastic);
  all[1]->membership->ReportReady(2);
  ASSERT_TRUE(Drive(Views(all), [&] { return AllAt(all, 2); }));
  EXPECT_EQ(all[2]->starts.back().world_size, 6);
  EXPECT_EQ(all[0]->stops.back().cause, StopCause::kResize);
  EXPECT_TRUE(all[0]->failures.empty());

  // One that waits to be taken in ends well with the others.
  all[2].reset();
  ASSERT_TRUE(Drive({all[0].get(), all[1].get()}, [&] { return all[1]->generation() == 3; }));
  all[0]->membership->ReportDone();
  all[2] = Make(2, 3, elastic);
  all[2]->membership->ReportReady(2);
  ASSERT_TRUE(Drive(Views(all), [&] { return all[0]->joined.size() == 4; }));
  all[1]->membership->ReportDone();
  ASSERT_TRUE(Drive(Views(all), [&] { return all[0]->finish && all[1]->finish && all[2]->finish; }));
  for (auto& it : all) EXPECT_EQ(it->finish, 0);
}

}  // namespace
}  // namespace lockstep::rendezvous
