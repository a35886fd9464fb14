#include "trainer/collectives/local/local_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>

#include "tests/unit/collectives/fork_store.h"
#include "tests/unit/collectives/processes.h"
#include "tests/unit/collectives/ranks.h"
#include "trainer/error.h"

namespace lockstep::trainer::collectives {
namespace {

using ::lockstep::testing::ForkStore;
using ::lockstep::testing::In;
using ::lockstep::testing::InMemoryStore;
using ::lockstep::testing::Meeting;
using ::lockstep::testing::Processes;
using ::lockstep::testing::RunRanks;
using ::lockstep::testing::Soon;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

TEST(LocalGroupTest, WhoDoesNotJoinIsNamed) {
  Meeting meeting;
  const auto thrown = RunRanks(3, [&](int r) {
    if (r != 1) meeting.Join(r, 3, milliseconds(200));
  });
  EXPECT_THAT(thrown[0], HasSubstr("missing 1"));
  EXPECT_THAT(thrown[2], HasSubstr("missing 1"));
}

TEST(LocalGroupTest, WithoutTheFirstRankTheOthersSaySo) {
  Meeting meeting;
  const auto thrown = RunRanks(2, [&](int r) {
    if (r == 1) meeting.Join(r, 2, milliseconds(100));
  });
  EXPECT_THAT(thrown[1], HasSubstr("joining rank 0"));
}

TEST(LocalGroupTest, ARankThatLeavesIsNamedAtOnce) {
  Meeting meeting;
  const auto start = Clock::now();
  const auto thrown = RunRanks(4, [&](int r) {
    const auto group = meeting.Join(r, 4);
    group->Barrier("first", Soon());
    if (r != 2) group->Barrier("second", Soon());
  });
  EXPECT_LT(Clock::now() - start, milliseconds(5000));
  for (const int r : {0, 1, 3}) {
    EXPECT_THAT(thrown[static_cast<size_t>(r)],
                AllOf(HasSubstr("second"), HasSubstr("rank 2"), HasSubstr("has left")));
  }
}

TEST(LocalGroupTest, LeavingAfterTheLastBarrierDisturbsNobody) {
  for (int round = 0; round < 50; ++round) {
    Meeting meeting;
    ASSERT_THAT(RunRanks(3, [&](int r) { meeting.Join(r, 3)->Barrier("last", Soon()); }), Each(IsEmpty()));
  }
}

TEST(LocalGroupTest, GlobalRanksAreNamed) {
  InMemoryStore store;
  const auto thrown = RunRanks(2, [&](int r) {
    const auto group = LocalGroup::Join(
        {.rank = r, .size = 2, .first_rank = 6, .store = &store, .key = "k", .deadline = Soon()});
    if (r == 0) group->Barrier("waiting", In(milliseconds(100)));
    if (r == 1)
      group->Wait(
          "never", [] { return LocalGroup::Look::kIdle; }, [](int) { return false; }, Soon());
  });
  EXPECT_THAT(thrown[0],
              AllOf(HasSubstr("rank 6 waited"), HasSubstr("rank 7"), HasSubstr("until the deadline")));
  EXPECT_THAT(thrown[1], AllOf(HasSubstr("rank 7"), HasSubstr("did not come")));
}

TEST(LocalGroupTest, TheFirstFailureIsWhatEveryRankReports) {
  Meeting meeting;
  const auto thrown = RunRanks(3, [&](int r) {
    const auto group = meeting.Join(r, 3);
    if (r == 1) group->Abort();
    group->Barrier("work", Soon());
  });
  for (const std::string& what : thrown)
    EXPECT_THAT(what, AllOf(HasSubstr("rank 1"), HasSubstr("has given up")));
}

TEST(LocalGroupTest, MemoryOfTheGroupIsSharedAndZero) {
  Meeting meeting;
  EXPECT_THAT(RunRanks(3,
                       [&](int r) {
                         const auto group = meeting.Join(r, 3);
                         const SharedSegment segment = group->CreateSegment("numbers", 3 * 64, Soon());
                         const auto numbers = segment.View<int>(0, 48);
                         EXPECT_EQ(numbers[static_cast<size_t>(r) * 16], 0);
                         numbers[static_cast<size_t>(r) * 16] = r + 1;
                         group->Barrier("written", Soon());
                         EXPECT_EQ(numbers[0] + numbers[16] + numbers[32], 6);
                         group->Barrier("read", Soon());
                       }),
              Each(IsEmpty()));
}

TEST(LocalGroupTest, AKilledProcessIsNoticedWithinASecond) {
  ForkStore store;
  const auto join = [&](int r) {
    return LocalGroup::Join({.rank = r, .size = 3, .store = &store, .key = "k", .deadline = Soon()});
  };
  Processes children(1, 3, [&](int r) {
    const auto group = join(r);
    group->Barrier("all there", Soon());
    if (r == 1) group->Barrier("all-reduce", Soon());
    while (true) ::pause();
  });
  const auto group = join(0);
  group->Barrier("all there", Soon());
  const auto start = Clock::now();
  children.Kill(1);
  std::string what;
  try {
    group->Barrier("all-reduce", Soon());
  } catch (const CollectiveLost& lost) {
    what = lost.what();
  }
  EXPECT_LT(Clock::now() - start, milliseconds(1000));
  EXPECT_THAT(what, AllOf(HasSubstr("all-reduce"), HasSubstr("rank 2"), HasSubstr("has died")));
}

TEST(LocalGroupTest, ProcessesThatAreStoppedAreWaitedForUntilTheDeadline) {
  ForkStore store;
  const auto join = [&](int r) {
    return LocalGroup::Join({.rank = r, .size = 2, .store = &store, .key = "k", .deadline = Soon()});
  };
  Processes children(1, 2, [&](int r) {
    const auto group = join(r);
    group->Barrier("all there", Soon());
    ::raise(SIGSTOP);
  });
  const auto group = join(0);
  group->Barrier("all there", Soon());
  std::string what;
  try {
    group->Barrier("all-reduce", In(milliseconds(300)));
  } catch (const CollectiveLost& lost) {
    what = lost.what();
  }
  EXPECT_THAT(what, AllOf(HasSubstr("rank 1"), HasSubstr("waited in vain")));
}

}  // namespace
}  // namespace lockstep::trainer::collectives
