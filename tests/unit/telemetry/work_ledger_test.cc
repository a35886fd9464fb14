#include "launcher/telemetry/work_ledger.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "tests/unit/telemetry/fake_time.h"

namespace lockstep::telemetry {
namespace {

// Steps of one second each, the first one beginning at `begin`.
void Steps(WorkLedger& ledger, int64_t first, int64_t last, double begin) {
  for (int64_t step = first; step <= last; ++step) {
    ledger.Step(step, 1, At(begin + static_cast<double>(step - first + 1)));
  }
}

double Lost(const WorkLedger& ledger, Loss loss, double now) { return ledger.time(At(now)).lost_to(loss); }

// Of productive time and all losses.
double Sum(const JobTime& time) {
  return std::accumulate(time.lost.begin(), time.lost.end(), time.productive);
}

TEST(WorkLedgerTest, AnUndisturbedJobLosesItsStartUpOnly) {
  WorkLedger ledger(At(0));
  EXPECT_FALSE(ledger.goodput(At(5)));
  ledger.Started(At(4));
  Steps(ledger, 1, 90, 10);
  EXPECT_DOUBLE_EQ(*ledger.goodput(At(100)), 0.9);
  EXPECT_DOUBLE_EQ(Lost(ledger, Loss::kWaitingForResources, 100), 4);
  EXPECT_DOUBLE_EQ(Lost(ledger, Loss::kStart, 100), 6);
}

TEST(WorkLedgerTest, ARestartLosesTheRepeatedStepsAndTheStandstill) {
  WorkLedger ledger(At(0));
  Steps(ledger, 1, 30, 0);
  ledger.Stopped(At(30.5));
  // From the checkpoint of step 20, after 4.5 s of restarting: 10 steps, half a one and 4.5 s.
  Steps(ledger, 21, 40, 35);
  EXPECT_NEAR(Lost(ledger, Loss::kRestart, 55), 15, 1e-9);
  EXPECT_NEAR(*ledger.goodput(At(55)), 40.0 / 55, 1e-9);
}

TEST(WorkLedgerTest, WaitingForAReplicaIsNotTheRestartsLoss) {
  WorkLedger ledger(At(0));
  Steps(ledger, 1, 10, 0);
  ledger.Stopped(At(10), Loss::kWaitingForResources);
  EXPECT_NEAR(Lost(ledger, Loss::kWaitingForResources, 13), 3, 1e-9);
  ledger.Started(At(15));
  ledger.Started(At(15));  // to no effect
  Steps(ledger, 11, 20, 17);
  EXPECT_NEAR(Lost(ledger, Loss::kWaitingForResources, 27), 5, 1e-9);
  EXPECT_NEAR(Lost(ledger, Loss::kRestart, 27), 2, 1e-9);
}

TEST(WorkLedgerTest, NothingIsCountedTwiceWhenARestartGoesFurtherBack) {
  WorkLedger ledger(At(0));
  Steps(ledger, 1, 30, 0);
  ledger.Stopped(At(30));
  Steps(ledger, 21, 25, 32);  // done again until 37
  EXPECT_NEAR(Lost(ledger, Loss::kRestart, 37), 12, 1e-9);
  ledger.Stopped(At(37));
  Steps(ledger, 11, 20, 40);  // the checkpoint of 20 was damaged: steps 11–25 and 3 s
  EXPECT_NEAR(Lost(ledger, Loss::kRestart, 50), 12 + 18, 1e-9);
  EXPECT_NEAR(*ledger.goodput(At(50)), 20.0 / 50, 1e-9);
}

TEST(WorkLedgerTest, AGenerationWithoutAStepIsPartOfTheStandstill) {
  WorkLedger ledger(At(0));
  Steps(ledger, 1, 10, 0);
  ledger.Stopped(At(10));
  ledger.Started(At(12));
  ledger.Stopped(At(15));
  EXPECT_NEAR(*ledger.goodput(At(20)), 0.5, 1e-9);
  Steps(ledger, 11, 20, 20);
  EXPECT_NEAR(Lost(ledger, Loss::kRestart, 30), 10, 1e-9);
}

TEST(WorkLedgerTest, AJobWithoutCheckpointsLosesEverything) {
  WorkLedger ledger(At(0));
  Steps(ledger, 1, 50, 0);
  ledger.Stopped(At(50));
  Steps(ledger, 1, 1, 51);
  EXPECT_NEAR(Lost(ledger, Loss::kRestart, 52), 51, 1e-9);
}

TEST(WorkLedgerTest, ALongJobIsKeptInABoundedTableAndStaysExactForEvenSteps) {
  WorkLedger ledger(At(0));
  constexpr int64_t kSteps = 100'000;
  Steps(ledger, 1, kSteps, 0);
  ledger.Stopped(At(kSteps));
  ledger.Step(77'778, 1, At(kSteps + 1));
  EXPECT_NEAR(Lost(ledger, Loss::kRestart, kSteps + 1), kSteps - 77'777, 1e-3);
}

TEST(WorkLedgerTest, AFreshLauncherMayResumeInTheMiddle) {
  WorkLedger ledger(At(0));
  Steps(ledger, 101, 110, 5);
  EXPECT_EQ(Lost(ledger, Loss::kRestart, 15), 0);
  ledger.Stopped(At(15));
  ledger.Step(101, 1, At(17));
  EXPECT_NEAR(Lost(ledger, Loss::kRestart, 17), 11, 1e-9);
}

TEST(WorkLedgerTest, ProductiveTimeAndLossesAreAllTheTimeWhateverIsClaimed) {
  WorkLedger ledger(At(0));
  const auto whole = [&](double now) { EXPECT_NEAR(Sum(ledger.time(At(now))), now, 1e-9) << now; };
  whole(1);
  ledger.Lose(Loss::kDataWait, 3, At(1));  // there are no steps yet
  ledger.Started(At(2));
  whole(2.5);
  Steps(ledger, 1, 10, 3);
  whole(13);
  ledger.Lose(Loss::kCheckpoint, 0.5, At(13));
  ledger.Lose(Loss::kDataWait, -7, At(13));
  EXPECT_NEAR(ledger.time(At(13)).productive, 9.5, 1e-9);
  ledger.Lose(Loss::kStraggler, 1e300, At(13));
  EXPECT_EQ(ledger.time(At(13)).productive, 0);
  whole(13);
  ledger.Stopped(At(14));
  whole(15);
  ledger.Step(5, std::numeric_limits<double>::max(), At(16));
  whole(16);
  ledger.Stopped(At(17));
  whole(18);
}

TEST(WorkLedgerTest, WhatWasToldOnceIsNeverTakenBack) {
  WorkLedger ledger(At(0));
  ledger.Started(At(0));
  EXPECT_EQ(ledger.Tell(At(6)).lost_to(Loss::kStart), 6);
  ledger.Step(1, 5, At(10));  // it began at 5
  EXPECT_EQ(Lost(ledger, Loss::kStart, 10), 6);
  ledger.Stopped(At(10));
  EXPECT_EQ(ledger.Tell(At(12)).lost_to(Loss::kRestart), 2);
  ledger.Step(2, 5, At(14));
  EXPECT_GE(Lost(ledger, Loss::kRestart, 14), 2);
  EXPECT_NEAR(Sum(ledger.time(At(20))), 20, 1e-9);
}

}  // namespace
}  // namespace lockstep::telemetry
