#include "common/wall_time.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(WallTimeTest, IsWrittenAndReadAsRfc3339) {
  const auto time = ParseTime("2026-01-31T12:00:01.25+02:00");
  ASSERT_TRUE(time);
  EXPECT_EQ(FormatTime(*time, TimeParts::kMicroseconds), "2026-01-31T10:00:01.250000Z");
  EXPECT_EQ(FormatTime(*time, TimeParts::kMilliseconds), "2026-01-31T10:00:01.250Z");
  EXPECT_EQ(FormatTime(*time), "2026-01-31T10:00:01Z");
  EXPECT_EQ(ParseTime(FormatTime(*time, TimeParts::kMicroseconds)), time);
  EXPECT_EQ(FormatTime(*ParseTime("2024-02-29T23:59:59Z")), "2024-02-29T23:59:59Z");
  for (const char* wrong : {"", "2026-01-31", "2026-02-30T00:00:00Z", "2026-01-31T25:00:00Z",
                            "2026-01-31T12:00:00", "2026-01-31T12:00:00.Z", "2026-01-31T12:00:00Zx"}) {
    EXPECT_FALSE(ParseTime(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace lockstep
