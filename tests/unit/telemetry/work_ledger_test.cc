#include "launcher/telemetry/work_ledger.h"

#include <gtest/gtest.h>

#include "tests/unit/telemetry/fake_time.h"

namespace lockstep::telemetry {
namespace {

// Steps of one second each, the first one beginning at `begin`. Returns what was lost.
double Steps(WorkLedger& ledger, int64_t first, int64_t last, double begin) {
  double lost = 0;
  for (int64_t step = first; step <= last; ++step) {
    lost += ledger.Step(step, 1, At(begin + static_cast<double>(step - first + 1)));
  }
  return lost;
}

TEST(WorkLedgerTest, AnUndisturbedJobLosesItsStartUpOnly) {
  WorkLedger ledger(At(0));
  EXPECT_FALSE(ledger.goodput(At(5)));
  EXPECT_EQ(Steps(ledger, 1, 90, 10), 0);
  EXPECT_DOUBLE_EQ(*ledger.goodput(At(100)), 0.9);
}

TEST(WorkLedgerTest, ARestartLosesTheRepeatedStepsAndTheStandstill) {
  WorkLedger ledger(At(0));
  Steps(ledger, 1, 30, 0);
  ledger.Stopped(At(30.5));
  // From the checkpoint of step 20, after 4.5 s of restarting: 10 steps, half a one and 4.5 s.
  EXPECT_NEAR(Steps(ledger, 21, 40, 35), 15, 1e-9);
  EXPECT_NEAR(ledger.lost_seconds(), 15, 1e-9);
  EXPECT_NEAR(*ledger.goodput(At(55)), 40.0 / 55, 1e-9);
}

TEST(WorkLedgerTest, NothingIsCountedTwiceWhenARestartGoesFurtherBack) {
  WorkLedger ledger(At(0));
  Steps(ledger, 1, 30, 0);
  ledger.Stopped(At(30));
  EXPECT_NEAR(Steps(ledger, 21, 25, 32), 12, 1e-9);  // 21–25 done again until 37
  ledger.Stopped(At(37));
  EXPECT_NEAR(Steps(ledger, 11, 20, 40), 18, 1e-9);  // the checkpoint of 20 was damaged: steps 11–25 and 3 s
  EXPECT_NEAR(*ledger.goodput(At(50)), 20.0 / 50, 1e-9);
}

TEST(WorkLedgerTest, AGenerationWithoutAStepIsPartOfTheStandstill) {
  WorkLedger ledger(At(0));
  Steps(ledger, 1, 10, 0);
  ledger.Stopped(At(10));
  ledger.Stopped(At(15));
  EXPECT_NEAR(*ledger.goodput(At(20)), 0.5, 1e-9);
  EXPECT_NEAR(Steps(ledger, 11, 20, 20), 10, 1e-9);
}

TEST(WorkLedgerTest, AJobWithoutCheckpointsLosesEverything) {
  WorkLedger ledger(At(0));
  Steps(ledger, 1, 50, 0);
  ledger.Stopped(At(50));
  EXPECT_NEAR(Steps(ledger, 1, 1, 51), 51, 1e-9);
}

TEST(WorkLedgerTest, ALongJobIsKeptInABoundedTableAndStaysExactForEvenSteps) {
  WorkLedger ledger(At(0));
  constexpr int64_t kSteps = 100'000;
  Steps(ledger, 1, kSteps, 0);
  ledger.Stopped(At(kSteps));
  EXPECT_NEAR(ledger.Step(77'778, 1, At(kSteps + 1)), kSteps - 77'777, 1e-3);
}

TEST(WorkLedgerTest, AFreshLauncherMayResumeInTheMiddle) {
  WorkLedger ledger(At(0));
  EXPECT_EQ(Steps(ledger, 101, 110, 5), 0);
  ledger.Stopped(At(15));
  EXPECT_NEAR(ledger.Step(101, 1, At(17)), 11, 1e-9);
}

}  // namespace
}  // namespace lockstep::telemetry
