#include "trainer/strategy/shared_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <vector>

#include "tests/unit/collectives/ranks.h"

namespace lockstep::trainer::strategy {
namespace {

using ::lockstep::testing::In;
using ::lockstep::testing::Meeting;
using ::lockstep::testing::RunRanks;
using ::lockstep::testing::Soon;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Value i of rank r in sum `turn`.
double ValueOf(int r, size_t i, int turn) { return 1.0 / (1.0 + r) + static_cast<double>(i) * turn; }

std::vector<double> ValuesOf(int r, size_t count, int turn) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = ValueOf(r, i, turn);
  return values;
}

TEST(SharedSumTest, AddsInTheOrderOfRanksAnyNumberOfValues) {
  constexpr int kRanks = 4;
  Meeting meeting;
  const auto thrown = RunRanks(kRanks, [&](int r) {
    const auto group = meeting.Join(r, kRanks);
    SharedSum sums({.group = group.get(), .deadline = [] { return Soon(); }});
    int turn = 0;
    for (const size_t count : {size_t{1}, size_t{64}, size_t{1024}, size_t{3000}, size_t{0}, size_t{2}}) {
      ++turn;
      std::vector<double> values = ValuesOf(r, count, turn);
      sums.Sum(values);
      for (size_t i = 0; i < count; ++i) {
        double wanted = 0;
        for (int other = 0; other < kRanks; ++other) wanted += ValueOf(other, i, turn);
        ASSERT_EQ(values[i], wanted) << count << " " << i;
      }
    }
    group->Barrier("end", Soon());
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

TEST(SharedSumTest, GoesOverMachines) {
  constexpr int kMachines = 2, kLocal = 2;
  Meeting store;
  Meeting machines[kMachines];
  const auto thrown = RunRanks(kMachines * kLocal, [&](int r) {
    const int machine = r / kLocal;
    const auto group = machines[machine].Join(r % kLocal, kLocal);
    testing::Rank between;
    if (r % kLocal == 0) between = Connect(testing::Transport::kGloo, store, machine, kMachines);
    SharedSum sums({.group = group.get(),
                    .machines = between.communicator.get(),
                    .several_machines = true,
                    .deadline = [] { return Soon(); }});
    for (int turn = 0; turn < 5; ++turn) {
      std::vector<double> values = ValuesOf(r, 1500, turn);
      sums.Sum(values);
      for (size_t i = 0; i < values.size(); ++i) {
        double wanted = 0;
        for (int m = 0; m < kMachines; ++m) wanted += ValueOf(m * 2, i, turn) + ValueOf(m * 2 + 1, i, turn);
        ASSERT_EQ(values[i], wanted) << turn << " " << i;
      }
    }
    group->Barrier("end", Soon());
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

TEST(SharedSumTest, EndsAtItsDeadlineAndNamesWhoIsMissing) {
  Meeting meeting;
  std::latch gave_up(1);
  const auto thrown = RunRanks(2, [&](int r) {
    const auto group = meeting.Join(r, 2);
    SharedSum sums({.group = group.get(), .deadline = [] { return In(std::chrono::milliseconds(300)); }});
    if (r == 1) return gave_up.wait();
    std::vector<double> values(2, 1.0);
    try {
      sums.Sum(values);
    } catch (...) {
      gave_up.count_down();
      throw;
    }
    gave_up.count_down();
  });
  EXPECT_THAT(thrown[0], AllOf(HasSubstr("sum over the replicas"), HasSubstr("rank 1")));
}

}  // namespace
}  // namespace lockstep::trainer::strategy
