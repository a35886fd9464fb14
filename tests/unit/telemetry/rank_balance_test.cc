#include "launcher/telemetry/rank_balance.h"

#include <gtest/gtest.h>

#include "tests/unit/telemetry/fake_time.h"

namespace lockstep::telemetry {
namespace {

contract::StepEvent Took(double seconds, double collective, double data_wait = 0, int64_t steps = 1) {
  return {
      .steps = steps, .seconds = seconds, .collective_seconds = collective, .data_wait_seconds = data_wait};
}

TEST(RankBalanceTest, WhatRanksWaitForTheSlowestIsApartFromTheCommunication) {
  RankBalance balance(true);
  EXPECT_FALSE(balance.Step(0, Took(1, 0.5), At(0)));
  EXPECT_FALSE(balance.Step(1, Took(1, 0.125), At(0)));
  EXPECT_TRUE(balance.delays().empty()) << "no window has ended";
  EXPECT_FALSE(balance.Step(2, Took(1, 0.5, 0.25), At(0)));
  const auto window = balance.Step(0, Took(1, 0.5), At(1));
  ASSERT_TRUE(window);
  // Rank 0 was quicker to tell of its second step; a step's mean is what counts.
  EXPECT_DOUBLE_EQ(window->exposed, 0.125 * 4 / 3);
  EXPECT_EQ(window->straggling, 0) << "told with the next";
  EXPECT_NEAR(window->data_wait, 0.25 / 3, 1e-12);
  ASSERT_TRUE(balance.straggler());
  EXPECT_EQ(balance.straggler()->rank, 1);
  EXPECT_DOUBLE_EQ(balance.straggler()->delay, 0.375);
  const auto next = balance.End();
  ASSERT_TRUE(next);
  EXPECT_NEAR(next->straggling, (0.5 + 0.5 + 0.125 + 0.5) / 3 - 0.125 * 4 / 3, 1e-12);
}

// Two ranks; of each window's second rank 1 waits `waits` for rank 0.
double StragglingOf(RankBalance& balance, double at, double waits) {
  balance.Step(0, Took(1, 0), At(at));
  return balance.Step(1, Took(1, waits), At(at + 1))->straggling;
}

TEST(RankBalanceTest, WaitingForOneThatIsBlockedIsNotStragglingToo) {
  RankBalance balance(true);
  EXPECT_EQ(StragglingOf(balance, 0, 0.5), 0);
  balance.Blocked(0.25);  // of the window before, and told late
  EXPECT_DOUBLE_EQ(StragglingOf(balance, 1, 0.5), 0.25 - 0.125);
  balance.Blocked(1.5);  // explains all of this window, and a part of the next
  EXPECT_DOUBLE_EQ(StragglingOf(balance, 2, 0.5), 0);
  EXPECT_DOUBLE_EQ(StragglingOf(balance, 3, 0.25), 0);
  EXPECT_DOUBLE_EQ(StragglingOf(balance, 4, 0), 0.125) << "nothing is carried further than that";
}

TEST(RankBalanceTest, OfTwoTheSlowerOneIsTheStraggler) {
  RankBalance balance(true);
  balance.Step(0, Took(1, 0), At(0));
  balance.Step(1, Took(1, 0.75), At(1));
  ASSERT_TRUE(balance.straggler());
  EXPECT_EQ(balance.straggler()->rank, 0);
  EXPECT_DOUBLE_EQ(balance.delays().at(0), 0.75);
  EXPECT_DOUBLE_EQ(balance.delays().at(1), 0);
}

TEST(RankBalanceTest, EqualRanksHaveNoStraggler) {
  RankBalance balance(true);
  balance.Step(0, Took(1, 0.26), At(0));
  balance.Step(1, Took(1, 0.25), At(1));
  EXPECT_FALSE(balance.straggler());
}

TEST(RankBalanceTest, AWindowWaitsForEveryRankButNotForEver) {
  RankBalance balance(true);
  balance.Step(0, Took(1, 0), At(0));
  EXPECT_TRUE(balance.Step(1, Took(1, 0.5), At(1)));
  EXPECT_FALSE(balance.Step(0, Took(1, 0), At(3)));
  EXPECT_FALSE(balance.Step(0, Took(1, 0), At(60)));
  const auto alone = balance.Step(0, Took(1, 0.25), At(61));
  ASSERT_TRUE(alone);
  EXPECT_DOUBLE_EQ(alone->exposed, 0.25);
  EXPECT_DOUBLE_EQ(alone->straggling, 0.25) << "of the window before";
  EXPECT_TRUE(balance.delays().empty()) << "of a single rank";
}

TEST(RankBalanceTest, WhatIsLeftOfAGenerationCounts) {
  RankBalance balance(true);
  EXPECT_FALSE(balance.End());
  balance.Step(0, Took(4, 2, 1, 4), At(0));
  balance.Step(1, Took(4, 1, 1, 4), At(0));
  const auto rest = balance.End();
  ASSERT_TRUE(rest);
  EXPECT_DOUBLE_EQ(rest->exposed, 1);
  EXPECT_DOUBLE_EQ(rest->straggling, 0.5);
  EXPECT_DOUBLE_EQ(rest->data_wait, 1);
  EXPECT_TRUE(balance.delays().empty());
  EXPECT_FALSE(balance.End());
}

TEST(RankBalanceTest, WhereNobodyWaitsForOthersNothingStraggles) {
  RankBalance balance(false);
  balance.Step(0, Took(1, 0.5), At(0));
  const auto window = balance.Step(1, Took(1, 0.25), At(1));
  ASSERT_TRUE(window);
  EXPECT_DOUBLE_EQ(window->exposed, 0.375);
  EXPECT_DOUBLE_EQ(window->straggling, 0);
  EXPECT_FALSE(balance.straggler());
}

TEST(RankBalanceTest, ClaimsThatCannotBeAreCutDown) {
  RankBalance balance(true);
  balance.Step(0, Took(1, 50, 50), At(0));
  const auto window = balance.Step(1, Took(-1, -5, -5), At(1));
  ASSERT_TRUE(window);
  EXPECT_GE(window->exposed, 0);
  EXPECT_LE(window->exposed + window->straggling + window->data_wait, 1);
}

}  // namespace
}  // namespace lockstep::telemetry
