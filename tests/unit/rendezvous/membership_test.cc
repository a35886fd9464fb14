#include "launcher/rendezvous/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/contract/exit_codes.h"
#include "launcher/rendezvous/control_message.h"
#include "launcher/rendezvous/listener.h"
#include "tests/unit/rendezvous/membership_testing.h"
#include "tests/unit/rendezvous/rendezvous_testing.h"

namespace lockstep::rendezvous {
namespace {

using ::testing::AnyOf;
using testing::Clock;
using ::testing::HasSubstr;
using testing::In;
using testing::kPatience;
using testing::Launcher;
using testing::MembershipTest;
using testing::milliseconds;
using testing::seconds;

TEST_F(MembershipTest, OneReplicaRunsRestartsAndFinishesAlone) {
  auto it = Lead(1, [](Membership::Options& options) { options.rendezvous = ""; });
  EXPECT_THAT(address_, HasSubstr("127.0.0.1:"));
  it->membership->ReportReady(4);
  EXPECT_TRUE(it->starts.empty()) << "callbacks come from the loop only";
  ASSERT_TRUE(Drive({it.get()}, [&] { return it->generation() == 0; }));
  const GenerationStart& start = it->starts[0];
  EXPECT_EQ(start.world_size, 4);
  EXPECT_EQ(start.rank_offset, 0);
  EXPECT_EQ(start.master_address, "127.0.0.1");
  EXPECT_GT(start.master_port, 0);
  EXPECT_EQ(start.store_address, address_);
  EXPECT_EQ(start.replicas.size(), 1u);

  it->membership->ReportFailure({.process = 2, .rank = 2, .exit_code = 137, .message = "killed"});
  ASSERT_TRUE(Drive({it.get()}, [&] { return !it->failures.empty(); }));
  EXPECT_EQ(it->stops.size(), 1u);
  EXPECT_EQ(it->stops[0].cause, StopCause::kFailure);
  EXPECT_EQ(it->failures[0].rank, 2);
  it->membership->DecideRestart({});
  ASSERT_TRUE(Drive({it.get()}, [&] { return it->generation() == 1; }));
  it->membership->ReportDone();
  ASSERT_TRUE(Drive({it.get()}, [&] { return it->finish.has_value(); }));
  EXPECT_EQ(it->finish, 0);
}

TEST_F(MembershipTest, RanksOfTheGenerationReachTheStore) {
  auto it = Lead(1);
  it->membership->ReportReady(2);
  ASSERT_TRUE(Drive({it.get()}, [&] { return it->generation() == 0; }));
  const GenerationStart start = it->starts[0];
  std::atomic<bool> done = false;
  std::thread rank([&] {
    const auto store = contract::StoreClient::Connect({.address = start.store_address,
                                                       .token = token_,
                                                       .job = "mnist",
                                                       .generation = start.generation,
                                                       .rank = 1,
                                                       .store_id = start.store_id,
                                                       .deadline = In(kPatience)});
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    EXPECT_TRUE(store.ok() && (*store)->Set("k", "v", In(kPatience)).ok());
    done = true;
  });
  EXPECT_TRUE(Drive({it.get()}, [&] { return done.load(); }));
  rank.join();
}

TEST_F(MembershipTest, AllReplicasLearnTheSameWorld) {
  std::vector<std::unique_ptr<Launcher>> all;
  all.push_back(Lead(3));
  all.push_back(Make(1, 3));
  all.push_back(Make(2, 3, [](Membership::Options& options) { options.advertised_host = "node2.example"; }));
  for (int i = 0; i < 3; ++i) all[i]->membership->ReportReady(i + 1);
  ASSERT_TRUE(Drive(Views(all), [&] { return AllAt(all, 0); }));
  const int offsets[] = {0, 1, 3};
  for (int i = 0; i < 3; ++i) {
    const GenerationStart& start = all[i]->starts[0];
    EXPECT_EQ(start.world_size, 6);
    EXPECT_EQ(start.rank_offset, offsets[i]);
    EXPECT_EQ(start.master_address, "127.0.0.1");
    EXPECT_EQ(start.master_port, all[0]->starts[0].master_port);
    EXPECT_EQ(start.store_address, address_);
    EXPECT_EQ(start.store_id, all[0]->starts[0].store_id);
    ASSERT_EQ(start.replicas.size(), 3u);
    EXPECT_EQ(start.replicas[1].host, "127.0.0.1");
    EXPECT_EQ(start.replicas[2].host, "node2.example");
    EXPECT_EQ(start.replicas[2].processes, 3);
  }
}

// A follower on the leader's machine connects over the loopback, whose address is of no use to a third
// machine.
TEST_F(MembershipTest, LoopbackIsNotGivenToOthersAsAnAddress) {
  const auto all = Running(2, [](Membership::Options& options) {
    if (options.replica == 0) options.advertised_host = "node0.example";
  });
  for (const auto& launcher : all) {
    EXPECT_EQ(launcher->starts[0].master_address, "node0.example");
    EXPECT_EQ(launcher->starts[0].replicas[0].host, "node0.example");
    EXPECT_EQ(launcher->starts[0].replicas[1].host, "node0.example");
  }
}

TEST_F(MembershipTest, AllFinishTogetherWhenAllAreDone) {
  auto all = Running(3);
  all[2]->membership->ReportDone();
  all[0]->membership->ReportDone();
  EXPECT_FALSE(Drive(
      Views(all), [&] { return all[0]->finish || all[2]->finish; }, milliseconds(100)));
  all[1]->membership->ReportDone();
  ASSERT_TRUE(Drive(Views(all), [&] { return all[0]->finish && all[1]->finish && all[2]->finish; }));
  for (auto& launcher : all) {
    EXPECT_EQ(launcher->finish, 0);
    EXPECT_TRUE(launcher->stops.empty());
    EXPECT_TRUE(launcher->losses.empty());
  }
}

TEST_F(MembershipTest, FailureAnywhereIsDecidedByReplica0) {
  auto all = Running(2);
  all[1]->membership->ReportFailure({.process = 1,
                                     .rank = 3,
                                     .own_trainer = true,
                                     .exit_code = 137,
                                     .signal = 9,
                                     .reason = "OOMKilled",
                                     .message = "rank 3 was killed"});
  ASSERT_TRUE(Drive(Views(all), [&] { return !all[0]->failures.empty(); }));
  const FailureReport& failure = all[0]->failures[0];
  EXPECT_EQ(failure.replica, 1);
  EXPECT_EQ(failure.process, 1);
  EXPECT_EQ(failure.rank, 3);
  EXPECT_EQ(failure.exit_code, 137);
  EXPECT_EQ(failure.signal, 9);
  EXPECT_TRUE(failure.own_trainer);
  EXPECT_EQ(failure.reason, "OOMKilled");
  EXPECT_EQ(failure.message, "rank 3 was killed");
  EXPECT_TRUE(all[1]->failures.empty());
  for (auto& launcher : all) {
    ASSERT_EQ(launcher->stops.size(), 1u);
    EXPECT_EQ(launcher->stops[0].cause, StopCause::kFailure);
    EXPECT_THAT(launcher->stops[0].message, HasSubstr("rank 3"));
  }
  all[0]->membership->DecideRestart({});
  ASSERT_TRUE(Drive(Views(all), [&] { return AllAt(all, 1); }));
  all[0]->membership->ReportFailure({.rank = 0, .exit_code = 3});
  ASSERT_TRUE(Drive(Views(all), [&] { return all[0]->failures.size() == 2; }));
  all[0]->membership->DecideFinish(3, "bad data");
  ASSERT_TRUE(Drive(Views(all), [&] { return all[0]->finish && all[1]->finish; }));
  EXPECT_EQ(all[1]->finish, 3);
  EXPECT_EQ(all[1]->finish_message, "bad data");
}

TEST_F(MembershipTest, RestartWaitsUntilTheSlowestHasStopped) {
  auto all = Running(2);
  all[1]->stops_at_once = false;
  all[0]->membership->ReportFailure({.rank = 0, .exit_code = 1});
  ASSERT_TRUE(Drive(Views(all), [&] { return !all[1]->stops.empty(); }));
  EXPECT_FALSE(Drive(
      Views(all), [&] { return !all[0]->failures.empty(); }, milliseconds(100)));
  all[1]->membership->ReportStopped(0);
  EXPECT_TRUE(Drive(Views(all), [&] { return !all[0]->failures.empty(); }));
}

// A machine that lost a GPU.
TEST_F(MembershipTest, ReplicasMayComeBackWithFewerProcesses) {
  for (const size_t fewer : {size_t{0}, size_t{1}}) {
    address_.clear();
    auto all = Running(2);
    for (auto& launcher : all) launcher->stops_at_once = false;
    all[fewer]->membership->ReportFailure({.rank = 0, .exit_code = 134});
    ASSERT_TRUE(Drive(Views(all), [&] { return all[0]->stops.size() == 1 && all[1]->stops.size() == 1; }));
    all[fewer]->membership->ReportReady(1);
    for (auto& launcher : all) launcher->membership->ReportStopped(0);
    ASSERT_TRUE(Drive(Views(all), [&] { return !all[0]->failures.empty(); }));
    EXPECT_TRUE(AllAt(all, 0)) << "nothing starts before it was decided";
    all[0]->membership->DecideRestart({});
    ASSERT_TRUE(Drive(Views(all), [&] { return AllAt(all, 1); }));
    for (auto& launcher : all) {
      EXPECT_EQ(launcher->starts[1].world_size, 3);
      EXPECT_EQ(launcher->starts[1].replicas[fewer].processes, 1);
      EXPECT_EQ(launcher->starts[1].replicas[1 - fewer].processes, 2);
    }
    EXPECT_EQ(all[1]->starts[1].rank_offset, fewer == 0 ? 1 : 2);
  }
}

TEST_F(MembershipTest, KilledLauncherIsNoticedAndItsReturnStartsTheNextGeneration) {
  auto all = Running(3);
  all[1].reset();
  ASSERT_TRUE(
      Drive({all[0].get(), all[2].get()}, [&] { return !all[0]->stops.empty() && !all[2]->stops.empty(); }));
  EXPECT_EQ(all[2]->stops[0].cause, StopCause::kPeerLost);
  EXPECT_THAT(all[2]->stops[0].message, HasSubstr("replica 1 is lost"));
  EXPECT_THAT(all[0]->losses, ::testing::ElementsAre(HasSubstr("replica 1 is lost")));
  all[1] = Make(1, 3);
  all[1]->membership->ReportReady(4);
  ASSERT_TRUE(Drive(Views(all), [&] { return AllAt(all, 1); }));
  EXPECT_EQ(all[2]->starts.back().world_size, 8);
  EXPECT_EQ(all[2]->starts.back().rank_offset, 6);
  EXPECT_TRUE(all[0]->failures.empty()) << "a loss is not a failure of the job";
}

// The defaults: a heartbeat a second, lost after 4 s of silence. What is promised is 5 s.
TEST_F(MembershipTest, CutOffLauncherIsNoticedByTheOthersAndByItselfWithinFiveSeconds) {
  auto all = Running(3, [](Membership::Options& options) {
    options.heartbeat = seconds(1);
    options.silence = seconds(4);
  });
  const auto cut = Clock::now();
  Launcher* frozen = all[1].get();
  ASSERT_TRUE(
      Drive({all[0].get(), all[2].get()}, [&] { return !all[0]->stops.empty() && !all[2]->stops.empty(); }));
  EXPECT_LT(Clock::now() - cut, seconds(5));
  EXPECT_GT(Clock::now() - cut, seconds(2));
  EXPECT_THAT(all[0]->losses, ::testing::ElementsAre(HasSubstr("silent for 4 s")));
  // It thaws: its ranks, of a generation that is over, are stopped, and it joins again.
  ASSERT_TRUE(Drive(Views(all), [&] { return AllAt(all, 1); }));
  ASSERT_EQ(frozen->stops.size(), 1u);
  EXPECT_EQ(frozen->stops[0].cause, StopCause::kPeerLost);
  EXPECT_EQ(frozen->stops[0].generation, 0);
}

TEST_F(MembershipTest, FollowersStopTheirRanksWhenReplica0IsSilent) {
  auto all = Running(3);
  ASSERT_TRUE(
      Drive({all[1].get(), all[2].get()}, [&] { return !all[1]->stops.empty() && !all[2]->stops.empty(); }));
  EXPECT_EQ(all[1]->stops[0].cause, StopCause::kPeerLost);
  EXPECT_THAT(all[1]->stops[0].message, HasSubstr("replica 0 is lost: silent"));
  ASSERT_TRUE(Drive(Views(all), [&] { return AllAt(all, 1); }));
}

TEST_F(MembershipTest, Replica0RestartedByHandGoesOnAboveEveryGenerationSeen) {
  auto all = Running(3);
  all[0]->membership->ReportFailure({.rank = 0, .exit_code = 1});
  ASSERT_TRUE(Drive(Views(all), [&] { return !all[0]->failures.empty(); }));
  all[0]->membership->DecideRestart({});
  ASSERT_TRUE(Drive(Views(all), [&] { return AllAt(all, 1); }));
  const std::string old_store = all[1]->starts.back().store_id;
  all[0].reset();
  ASSERT_TRUE(Drive({all[1].get(), all[2].get()},
                    [&] { return all[1]->stops.size() == 2 && all[2]->stops.size() == 2; }));
  all[0] = Lead(3);
  all[0]->membership->ReportReady(2);
  ASSERT_TRUE(Drive(Views(all), [&] { return AllAt(all, 2); }));
  EXPECT_NE(all[1]->starts.back().store_id, old_store);
  EXPECT_EQ(all[1]->starts.back().store_id, all[0]->starts.back().store_id);
}

TEST_F(MembershipTest, ReplicasThatNeverComeEndTheJobByName) {
  auto it = Lead(3, [](Membership::Options& options) { options.return_deadline = milliseconds(150); });
  it->membership->ReportReady(1);
  ASSERT_TRUE(Drive({it.get()}, [&] { return it->finish.has_value(); }));
  EXPECT_EQ(it->finish, contract::kExitRendezvous);
  EXPECT_THAT(it->finish_message, HasSubstr("replicas 1, 2 did not come"));
}

TEST_F(MembershipTest, FollowerGivesUpOnReplica0AtItsDeadline) {
  auto all = Running(2, [](Membership::Options& options) { options.return_deadline = milliseconds(300); });
  all[0].reset();
  ASSERT_TRUE(Drive({all[1].get()}, [&] { return all[1]->finish.has_value(); }));
  EXPECT_EQ(all[1]->finish, contract::kExitRendezvous);
  EXPECT_THAT(all[1]->finish_message, HasSubstr("did not return"));
  EXPECT_THAT(all[1]->finish_message, HasSubstr(address_));
  EXPECT_EQ(all[1]->stops.size(), 1u);
}

TEST_F(MembershipTest, FollowerStartedFirstWaitsForReplica0) {
  uint16_t port = 0;
  { port = ListenOn("127.0.0.1:0")->port; }
  address_ = "127.0.0.1:" + std::to_string(port);
  auto follower = Make(1, 2);
  follower->membership->ReportReady(1);
  EXPECT_FALSE(Drive(
      {follower.get()}, [&] { return !follower->joined.empty(); }, milliseconds(100)));
  auto leader = Lead(2);
  leader->membership->ReportReady(1);
  EXPECT_TRUE(Drive({leader.get(), follower.get()}, [&] { return follower->generation() == 0; }));
}

TEST_F(MembershipTest, SecondLauncherOfAReplicaIsRefusedWhileTheFirstLives) {
  auto all = Running(2, [](Membership::Options& options) { options.silence = milliseconds(200); });
  auto second = Make(1, 2, [](Membership::Options& options) { options.silence = milliseconds(200); });
  second->membership->ReportReady(1);
  ASSERT_TRUE(Drive({all[0].get(), all[1].get(), second.get()}, [&] { return second->finish.has_value(); }));
  EXPECT_THAT(second->finish_message, HasSubstr("replica 1 is here already"));
  EXPECT_NE(second->finish, 0);
  EXPECT_TRUE(all[0]->stops.empty()) << "the first goes on undisturbed";
}

TEST_F(MembershipTest, SecondLauncherTakesThePlaceOfOneThatHangs) {
  auto all = Running(2);
  auto second = Make(1, 2);
  second->membership->ReportReady(3);
  // The first is not driven any more.
  ASSERT_TRUE(Drive({all[0].get(), second.get()}, [&] { return second->generation() == 1; }));
  // When it wakes up it stops its ranks, and finds its place taken.
  ASSERT_TRUE(Drive({all[0].get(), second.get(), all[1].get()}, [&] { return all[1]->finish.has_value(); }));
  EXPECT_EQ(all[1]->stops.size(), 1u);
  EXPECT_EQ(all[1]->finish, contract::kExitSuperseded);
  EXPECT_THAT(all[1]->finish_message, HasSubstr("this one was replaced"));
  EXPECT_EQ(second->stops.size(), 0u);
}

struct RefusalCase {
  const char* name;
  std::function<void(Membership::Options&)> adjust;
  const char* message;
};

TEST_F(MembershipTest, LauncherOfAnotherJobIsRefusedWithTheReason) {
  auto leader = Lead(2);
  for (const RefusalCase& c : std::vector<RefusalCase>{
           {"job", [](auto& options) { options.job = "cifar"; }, "rendezvous of job mnist, not of job cifar"},
           {"manifest", [](auto& options) { options.manifest_digest = "other"; }, "another manifest"},
           {"replicas", [](auto& options) { options.replicas = 3; }, "another manifest"},
           {"token", [](auto& options) { options.token = contract::Token::Random(); }, "another token"}}) {
    SCOPED_TRACE(c.name);
    auto stranger = Make(1, 2, c.adjust);
    ASSERT_TRUE(Drive({leader.get(), stranger.get()}, [&] { return stranger->finish.has_value(); }));
    EXPECT_EQ(stranger->finish, contract::kExitUsage);
    EXPECT_THAT(stranger->finish_message, HasSubstr(c.message));
    EXPECT_THAT(stranger->finish_message, HasSubstr(address_));
  }
  EXPECT_TRUE(leader->joined.empty());
}

TEST_F(MembershipTest, StopAtReplica0EndsTheJobEverywhere) {
  auto all = Running(2);
  all[1]->stop_exit_code = contract::kExitCheckpointed;
  all[0]->membership->RequestStop("SIGTERM", 143);
  ASSERT_TRUE(Drive(Views(all), [&] { return all[0]->finish && all[1]->finish; }));
  for (auto& launcher : all) {
    EXPECT_EQ(launcher->finish, contract::kExitCheckpointed);
    ASSERT_EQ(launcher->stops.size(), 1u);
    EXPECT_EQ(launcher->stops[0].cause, StopCause::kTerminate);
  }
}

TEST_F(MembershipTest, StopAtAFollowerLetsItLeaveAndTheOthersWait) {
  auto all = Running(2);
  all[1]->stop_exit_code = contract::kExitCheckpointed;
  all[1]->membership->RequestStop("SIGTERM", 143);
  ASSERT_TRUE(Drive(Views(all), [&] { return all[1]->finish && !all[0]->stops.empty(); }));
  EXPECT_EQ(all[1]->finish, contract::kExitCheckpointed);
  EXPECT_EQ(all[1]->stops[0].cause, StopCause::kTerminate);
  EXPECT_EQ(all[0]->stops[0].cause, StopCause::kResize) << "it may save what it did";
  EXPECT_THAT(all[0]->losses, ::testing::ElementsAre(HasSubstr("replica 1 leaves: SIGTERM")));
  EXPECT_FALSE(all[0]->finish.has_value());
  all[1] = Make(1, 2);
  all[1]->membership->ReportReady(2);
  EXPECT_TRUE(Drive(Views(all), [&] { return AllAt(all, 1); }));
}

TEST_F(MembershipTest, FollowerEndsTooWhenReplica0DiesWhileItEndsTheJob) {
  auto all = Running(2);
  all[0]->stops_at_once = false;
  all[1]->stop_exit_code = 143;
  all[0]->membership->RequestStop("SIGINT", 130);
  ASSERT_TRUE(Drive(Views(all), [&] { return !all[1]->stops.empty(); }));
  all[0].reset();  // as by a second ctrl-C
  ASSERT_TRUE(Drive({all[1].get()}, [&] { return all[1]->finish.has_value(); }));
  EXPECT_EQ(all[1]->finish, 143);
}

TEST_F(MembershipTest, FollowerThatFailsAndDisconnectsIsNotWaitedForTwice) {
  auto all = Running(2);
  all[1]->stops_at_once = false;
  all[0]->membership->ReportFailure({.rank = 0, .exit_code = 1});
  ASSERT_TRUE(Drive(Views(all), [&] { return !all[1]->stops.empty(); }));
  all[1].reset();  // lost before it said that it has stopped
  ASSERT_TRUE(Drive({all[0].get()}, [&] { return !all[0]->failures.empty(); }));
  all[0]->membership->DecideRestart({});
  all[1] = Make(1, 2);
  all[1]->membership->ReportReady(2);
  EXPECT_TRUE(Drive(Views(all), [&] { return AllAt(all, 1); }));
}

TEST_F(MembershipTest, StrangersAndRanksOnTheSamePortDoNotDisturbLaunchers) {
  auto all = Running(2);
  const uint16_t port = contract::ParseHostPort(address_)->port;
  std::vector<std::unique_ptr<testing::RawConnection>> strays;
  for (int i = 0; i < 200; ++i) {
    strays.push_back(std::make_unique<testing::RawConnection>(port));
    if (i % 2 == 0) strays.back()->Send("GET / HTTP/1.1\r\n\r\n");
    all[0]->Turn();
    all[1]->Turn();
  }
  // Longer than the silence that would make a launcher lost.
  EXPECT_FALSE(Drive(
      Views(all), [&] { return !all[0]->stops.empty() || !all[1]->stops.empty(); }, milliseconds(800)));
}

// Replica 1 by hand, frame by frame.
class RawLauncher {
 public:
  RawLauncher(const std::string& address, const contract::Token& token)
      : connection_(contract::ParseHostPort(address)->port),
        handshake_(token,
                   {.kind = contract::PeerKind::kLauncher, .job = "mnist", .generation = -1, .index = 1}) {}

  Status Join(const std::string& instance) {
    connection_.Send(handshake_.hello());
    connection_.Send(*handshake_.Answer(connection_.ReceiveFrame()));
    EXPECT_TRUE(contract::DecodeWelcome(connection_.ReceiveFrame())->status.ok());
    Send(JoinMessage{.instance = instance, .manifest_digest = "digest", .replicas = 2});
    return std::get<JoinedMessage>(*DecodeControl(connection_.ReceiveFrame())).status;
  }
  void Send(const ControlMessage& message) { connection_.Send(EncodeControl(message)); }
  bool WaitUntilClosed() { return connection_.CountUntilClosed() >= 0; }

 private:
  testing::RawConnection connection_;
  contract::ClientHandshake handshake_;
};

// Runs the loop of `launcher` on a thread of its own until it dies.
class Driver {
 public:
  explicit Driver(Launcher& launcher)
      : thread_([&] {
          while (!stop_) launcher.Turn();
        }) {}
  ~Driver() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

TEST_F(MembershipTest, LauncherThatJoinsAndTalksNonsenseIsLostAndNoMore) {
  auto leader = Lead(2);
  {
    const Driver driver(*leader);
    RawLauncher peer(address_, token_);
    ASSERT_TRUE(peer.Join("one").ok());
    peer.Send(FinishMessage{.exit_code = 0});
    EXPECT_TRUE(peer.WaitUntilClosed());
  }
  EXPECT_TRUE(Drive({leader.get()}, [&] { return !leader->losses.empty(); }));
  EXPECT_FALSE(leader->finish.has_value());
}

// As after a partition of which only the follower has taken notice.
TEST_F(MembershipTest, SameLauncherMayJoinAnewWhereAnotherMayNot) {
  auto leader = Lead(2, [](Membership::Options& options) { options.silence = seconds(60); });
  {
    const Driver driver(*leader);
    RawLauncher first(address_, token_);
    ASSERT_TRUE(first.Join("one").ok());
    RawLauncher other(address_, token_);
    EXPECT_EQ(other.Join("another").code(), StatusCode::kUnavailable);
    RawLauncher again(address_, token_);
    EXPECT_TRUE(again.Join("one").ok());
    EXPECT_TRUE(first.WaitUntilClosed());
  }
  ASSERT_TRUE(Drive({leader.get()}, [&] { return !leader->losses.empty(); }));
  EXPECT_THAT(leader->losses[0], HasSubstr("connected anew"));
}

TEST_F(MembershipTest, FollowerThatStopsSlowlyJoinsAtOnceAndIsReadyOnceItHasStopped) {
  auto all = Running(2);
  all[1]->stops_at_once = false;
  all[0].reset();
  ASSERT_TRUE(Drive({all[1].get()}, [&] { return !all[1]->stops.empty(); }));
  all[0] = Lead(2);
  all[0]->membership->ReportReady(2);
  ASSERT_TRUE(Drive(Views(all), [&] { return !all[0]->joined.empty(); }));
  EXPECT_FALSE(Drive(
      Views(all), [&] { return all[0]->generation() >= 0; }, milliseconds(100)));
  all[1]->membership->ReportStopped(137);
  EXPECT_TRUE(Drive(Views(all), [&] { return AllAt(all, 1); }));
}

TEST_F(MembershipTest, WrongOptionsAreRefusedAtOnce) {
  const auto loop = std::move(*EventLoop::Create());
  const auto code = [&](const Adjust& adjust) {
    Membership::Options options{.loop = loop.get(), .token = token_};
    options.job = "mnist";
    adjust(options);
    return Membership::Create(std::move(options)).status().code();
  };
  EXPECT_EQ(code([](auto& o) { o.replica = 1; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.job = ""; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.rendezvous = "fd00::1:80"; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.replicas = 2, o.replica = 1; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.replicas = 2, o.replica = 1, o.rendezvous = ":80"; }),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::rendezvous
