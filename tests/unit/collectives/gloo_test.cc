#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/collectives/fork_store.h"
#include "tests/unit/collectives/processes.h"
#include "tests/unit/collectives/ranks.h"
#include "trainer/collectives/gloo/gloo_communicator.h"
#include "trainer/collectives/gloo/local_address.h"
#include "trainer/collectives/local/shared_segment.h"
#include "trainer/error.h"

namespace lockstep::trainer::collectives {
namespace {

using ::lockstep::testing::ForkStore;
using ::lockstep::testing::In;
using ::lockstep::testing::InMemoryStore;
using ::lockstep::testing::Processes;
using ::lockstep::testing::RunRanks;
using ::lockstep::testing::Soon;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

TEST(GlooTest, ARankThatDoesNotComeIsAFailedRendezvousInTime) {
  InMemoryStore store;
  const auto start = Clock::now();
  const auto thrown = RunRanks(2, [&](int r) {
    ConnectGloo(
        {.rank = r, .size = 3, .store = &store, .reach = "127.0.0.1", .deadline = In(milliseconds(300))});
  });
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  EXPECT_THAT(thrown, Each(AllOf(HasSubstr("over Gloo"), HasSubstr("waited for key gloo/2"))));
}

TEST(GlooTest, AnInterfaceThatIsNotThereIsNamed) {
  InMemoryStore store;
  const auto thrown = RunRanks(2, [&](int r) {
    ConnectGloo(
        {.rank = r, .size = 2, .store = &store, .interface = "nosuch0", .deadline = In(milliseconds(500))});
  });
  EXPECT_THAT(thrown, Each(HasSubstr("nosuch0")));
}

TEST(GlooTest, TheLoopbackInterfaceConnects) {
  InMemoryStore store;
  EXPECT_THAT(
      RunRanks(2,
               [&](int r) {
                 ConnectGloo({.rank = r, .size = 2, .store = &store, .interface = "lo", .deadline = Soon()})
                     ->Barrier(Soon());
               }),
      Each(::testing::IsEmpty()));
}

TEST(GlooTest, AKilledPeerIsNoticedAndNamed) {
  ForkStore store;
  Processes children(1, 2, [&](int r) {
    const auto peer =
        ConnectGloo({.rank = r, .size = 2, .store = &store, .reach = "127.0.0.1", .deadline = Soon()});
    peer->Barrier(Soon());
    while (true) ::pause();
  });
  const auto communicator = ConnectGloo({.rank = 0,
                                         .size = 2,
                                         .store = &store,
                                         .reach = "127.0.0.1",
                                         .deadline = Soon(),
                                         .first_rank = 1,
                                         .rank_stride = 4});
  communicator->Barrier(Soon());
  const auto start = Clock::now();
  children.Kill(0);
  std::string what;
  try {
    std::vector<float> data(100'000);
    communicator->AllReduce(std::span(data), Soon());
  } catch (const CollectiveLost& lost) {
    what = lost.what();
  }
  EXPECT_LT(Clock::now() - start, milliseconds(1000));
  EXPECT_THAT(what, AllOf(HasSubstr("all-reduce"), HasSubstr("rank 1 lost rank 5")));
}

// One of two ranks dies while it receives, or sends, what is more than the connection holds. What the other
// says; empty if the message was through before.
std::string WhenKilledInTheMiddle(bool survivor_sends) {
  constexpr size_t kBytes = 64 << 20;
  const std::vector<std::byte> sent(kBytes, std::byte{1});
  const SharedSegment received = SharedSegment::Create("received", kBytes);
  const std::span<std::byte> place(received.data(), kBytes);
  ForkStore store;
  const auto transfer = [&](int r) {
    const auto communicator =
        ConnectGloo({.rank = r, .size = 2, .store = &store, .reach = "127.0.0.1", .deadline = Soon()});
    if ((r == 0) == survivor_sends) return communicator->Send(sent, 1 - r, Soon());
    communicator->Recv(place, 1 - r, Soon());
  };
  Processes children(1, 2, transfer);
  Clock::time_point killed;
  std::jthread killer([&](const std::stop_token& stop) {
    const volatile std::byte& first = place[0];
    while (first == std::byte{} && !stop.stop_requested()) std::this_thread::yield();
    killed = Clock::now();
    children.Kill(0);
  });
  std::string what;
  try {
    transfer(0);
  } catch (const CollectiveLost& lost) {
    what = lost.what();
  }
  killer.join();
  EXPECT_LT(Clock::now() - killed, milliseconds(1000));
  return what;
}

TEST(GlooTest, APeerKilledInTheMiddleOfAMessageIsNoticed) {
  for (const bool survivor_sends : {true, false}) {
    std::string what;
    for (int attempt = 0; attempt < 20 && what.empty(); ++attempt) {
      what = WhenKilledInTheMiddle(survivor_sends);
    }
    EXPECT_THAT(what, HasSubstr("rank 0 lost rank 1")) << survivor_sends;
  }
}

TEST(LocalAddressTest, IsTheOneTowardsThePeer) {
  EXPECT_EQ(LocalAddressTowards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(LocalAddressTowards("127.0.0.1:29500"), "127.0.0.1");
  EXPECT_THROW(LocalAddressTowards("no-such-host.invalid:1"), RendezvousFailed);
}

}  // namespace
}  // namespace lockstep::trainer::collectives
