#include "launcher/telemetry/curve.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep::telemetry {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(CurveTest, StepsThatAreFarApartAreAPointEach) {
  Curve curve;
  curve.Add({.seconds = 1, .step = 1, .samples = 8, .took = 0.5, .loss = 2});
  curve.Add({.seconds = 2, .step = 2, .samples = 8, .took = 1, .loss = 1});
  const auto points = curve.points();
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].seconds, 1);
  EXPECT_EQ(points[0].step, 1);
  EXPECT_EQ(points[0].loss, 2);
  EXPECT_EQ(points[0].samples_per_second, 16);
  EXPECT_EQ(points[1].samples_per_second, 8);
}

TEST(CurveTest, StepsOfOneStretchBecomeTheirMeanAndTheirRate) {
  Curve curve;
  curve.Add({.seconds = 1.01, .step = 1, .samples = 10, .took = 0.01, .loss = 4});
  curve.Add({.seconds = 1.02, .step = 2, .samples = 10, .took = 0.01, .loss = kNaN});
  curve.Add({.seconds = 1.05, .step = 3, .samples = 20, .took = 0.02, .loss = 2});
  const auto points = curve.points();
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].seconds, 1.05);
  EXPECT_EQ(points[0].step, 3);
  EXPECT_EQ(points[0].loss, 3);
  EXPECT_DOUBLE_EQ(*points[0].samples_per_second, 1000);
}

TEST(CurveTest, WhatWasNotToldIsEmpty) {
  Curve curve;
  curve.Add({.seconds = 1, .step = 1, .samples = 8, .took = 0, .loss = kNaN});
  EXPECT_FALSE(curve.points()[0].loss);
  EXPECT_FALSE(curve.points()[0].samples_per_second);
}

// Ten hours of steps of 10 ms.
TEST(CurveTest, ALongRunHasFewPointsThatAreEvenlySpread) {
  constexpr int kSteps = 3'600'000;
  Curve curve;
  for (int step = 1; step <= kSteps; ++step) {
    curve.Add({.seconds = step * 0.01, .step = step, .samples = 4, .took = 0.01, .loss = step * 1.0});
  }
  const auto points = curve.points();
  EXPECT_LE(points.size(), Curve::kMaxPoints);
  EXPECT_GE(points.size(), Curve::kMaxPoints / 2 - 1);
  EXPECT_EQ(points.back().step, kSteps);
  const double width = points[1].seconds - points[0].seconds;
  for (size_t i = 1; i + 1 < points.size(); ++i) {
    EXPECT_NEAR(points[i].seconds - points[i - 1].seconds, width, 0.02);
    EXPECT_NEAR(*points[i].samples_per_second, 400, 1e-6);
    // The mean of a straight line is its middle.
    EXPECT_NEAR(*points[i].loss, static_cast<double>(points[i - 1].step + 1 + points[i].step) / 2, 1e-3);
  }
}

TEST(CurveTest, AStandstillHasNoPoints) {
  Curve curve;
  for (const double at : {0.5, 1.0, 500.0, 500.5}) {
    curve.Add({.seconds = at, .step = 1, .samples = 1, .took = 0.5, .loss = 1});
  }
  EXPECT_EQ(curve.points().size(), 4u);
}

}  // namespace
}  // namespace lockstep::telemetry
