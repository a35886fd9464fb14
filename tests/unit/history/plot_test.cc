#include "launcher/history/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace lockstep::history {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Curve Falling(const std::string& name, size_t steps) {
  Curve curve{.name = name};
  for (size_t i = 1; i <= steps; ++i) {
    curve.points.push_back(
        {.step = static_cast<int64_t>(i), .loss = 2.0 / static_cast<double>(i), .samples_per_second = 1000});
  }
  return curve;
}

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(PlotTest, HasALineARunInBothPanelsAndTheirNames) {
  const std::string svg = Plot({Falling("a <b>", 10), Falling("c & d", 20)});
  EXPECT_EQ(Count(svg, "<polyline"), 4u);
  EXPECT_THAT(svg, HasSubstr("a &lt;b&gt;"));
  EXPECT_THAT(svg, HasSubstr("c &amp; d"));
}

TEST(PlotTest, PointsAreWhereTheirValuesAre) {
  const std::string svg = Plot({{.name = "r", .points = {{.step = 0, .loss = 0}, {.step = 10, .loss = 1}}}});
  // From the lower left to the upper right corner of the panel.
  EXPECT_THAT(svg, HasSubstr("points=\"90.0,290.0 880.0,70.0 \""));
  EXPECT_EQ(Count(svg, "<polyline"), 1u);  // no throughput was told
}

TEST(PlotTest, WhatIsFlatEmptyOrEndlessIsAPictureToo) {
  for (const Curve& curve : {Curve{}, Falling("one", 1), Falling("many", 100'000),
                             Curve{.points = {{.step = 1, .loss = 1e300}, {.step = 2, .loss = -1e300}}}}) {
    const std::string svg = Plot({curve});
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
    EXPECT_LE(svg.size(), 200'000u);
  }
}

}  // namespace
}  // namespace lockstep::history
