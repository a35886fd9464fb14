#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/unit/collectives/fork_store.h"
#include "tests/unit/collectives/processes.h"
#include "tests/unit/collectives/ranks.h"
#include "trainer/collectives/gloo/gloo_communicator.h"
#include "trainer/collectives/gloo/local_address.h"
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

TEST(LocalAddressTest, IsTheOneTowardsThePeer) {
  EXPECT_EQ(LocalAddressTowards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(LocalAddressTowards("127.0.0.1:29500"), "127.0.0.1");
  EXPECT_THROW(LocalAddressTowards("no-such-host.invalid:1"), RendezvousFailed);
}

}  // namespace
}  // namespace lockstep::trainer::collectives
