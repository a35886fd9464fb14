#include "launcher/telemetry/progress_meter.h"

#include <gtest/gtest.h>

#include "tests/unit/telemetry/fake_time.h"

namespace lockstep::telemetry {
namespace {

TEST(ProgressMeterTest, KnowsNothingBeforeTheFirstStep) {
  const ProgressMeter meter;
  EXPECT_FALSE(meter.samples_per_second());
  EXPECT_FALSE(meter.seconds_per_step());
  EXPECT_FALSE(meter.mean_samples_per_second());
  EXPECT_EQ(meter.median_step_seconds(), 0);
}

TEST(ProgressMeterTest, TheFirstStepCountsWithItsOwnTime) {
  ProgressMeter meter;
  meter.Step(100, 0.5, At(10));
  EXPECT_DOUBLE_EQ(*meter.samples_per_second(), 200);
}

TEST(ProgressMeterTest, TheRateFollowsTheLastTwoSeconds) {
  ProgressMeter meter;
  double time = 0;
  for (int i = 0; i < 1000; ++i) meter.Step(10, 0.01, At(time += 0.01));
  EXPECT_NEAR(*meter.samples_per_second(), 1000, 1);
  for (int i = 0; i < 110; ++i) meter.Step(10, 0.02, At(time += 0.02));  // 2.2 s at half the speed
  EXPECT_NEAR(*meter.samples_per_second(), 500, 5);
  EXPECT_NEAR(*meter.seconds_per_step(), 0.02, 0.0005);
  EXPECT_NEAR(*meter.mean_samples_per_second(), 11100 / 12.2, 1);
}

TEST(ProgressMeterTest, SlowStepsAreAveragedOverTen) {
  ProgressMeter meter;
  double time = 0;
  for (int i = 0; i < 20; ++i) meter.Step(10, 1, At(time += 1));
  for (int i = 0; i < 5; ++i) meter.Step(10, 3, At(time += 3));
  EXPECT_NEAR(*meter.seconds_per_step(), (5 * 1 + 5 * 3) / 10.0, 0.2);
}

TEST(ProgressMeterTest, PausesDoNotCount) {
  ProgressMeter meter;
  meter.Step(10, 0.1, At(1));
  meter.Step(10, 0.1, At(1.1));
  meter.Pause();  // evaluation, 60 s
  meter.Step(10, 0.1, At(61.2));
  meter.Step(10, 0.1, At(61.3));
  EXPECT_NEAR(*meter.samples_per_second(), 100, 1e-6);
  EXPECT_NEAR(*meter.mean_samples_per_second(), 100, 1e-6);
}

TEST(ProgressMeterTest, ARestartEmptiesTheWindowAndKeepsTheMean) {
  ProgressMeter meter;
  meter.Step(10, 0.1, At(1));
  meter.Restart();
  EXPECT_FALSE(meter.samples_per_second());
  EXPECT_NEAR(*meter.mean_samples_per_second(), 100, 1e-6);
  meter.Step(10, 0.2, At(50));
  EXPECT_NEAR(*meter.samples_per_second(), 50, 1e-6);
}

TEST(ProgressMeterTest, StepsOfUnknownTimeOnlyStartTheClock) {
  ProgressMeter meter;
  meter.Step(10, 0, At(1));
  EXPECT_FALSE(meter.samples_per_second());
  meter.Step(10, 0, At(1.5));
  EXPECT_NEAR(*meter.samples_per_second(), 20, 1e-6);
}

TEST(ProgressMeterTest, SeveralStepsToldTogetherCountEach) {
  ProgressMeter meter;
  meter.Step(10, 0.1, At(1));
  for (int i = 1; i <= 10; ++i) meter.Step(50, 0.5, At(1 + 0.5 * i), 5);
  EXPECT_NEAR(meter.median_step_seconds(), 0.1, 1e-6);
  EXPECT_NEAR(*meter.seconds_per_step(), 0.1, 1e-6);
  EXPECT_NEAR(*meter.samples_per_second(), 100, 1e-6);
}

TEST(ProgressMeterTest, TheMedianForgetsOutliersAndTheDistantPast) {
  ProgressMeter meter;
  double time = 0;
  for (int i = 0; i < 200; ++i) meter.Step(1, 1, At(time += 1));
  for (int i = 0; i < 64; ++i) meter.Step(1, 0, At(time += i % 8 == 0 ? 5 : 0.1));
  EXPECT_NEAR(meter.median_step_seconds(), 0.1, 1e-6);
}

}  // namespace
}  // namespace lockstep::telemetry
