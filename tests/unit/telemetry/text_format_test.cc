#include "launcher/telemetry/text_format.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::telemetry {
namespace {

TEST(TextFormatTest, GroupsThousands) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1000), "1,000");
  EXPECT_EQ(Grouped(1234567), "1,234,567");
  EXPECT_EQ(Grouped(-123), "-123");
  EXPECT_EQ(Grouped(-1234), "-1,234");
}

TEST(TextFormatTest, WritesDurationsInTwoUnits) {
  EXPECT_EQ(FormatDuration(-1), "0 s");
  EXPECT_EQ(FormatDuration(40.2), "41 s");
  EXPECT_EQ(FormatDuration(185), "3 min 05 s");
  EXPECT_EQ(FormatDuration(7800), "2 h 10 min");
  EXPECT_EQ(FormatDuration(3 * 86400 + 4 * 3600), "3 d 04 h");
  EXPECT_EQ(FormatDuration(1e300), "very long");
  EXPECT_EQ(FormatDuration(std::nan("")), "very long");
}

TEST(TextFormatTest, WritesBytesInBinaryUnits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(int64_t{5} << 40), "5.0 TiB");
}

TEST(TextFormatTest, WritesALossOfAnySize) {
  EXPECT_EQ(FormatLoss(0.31), "0.3100");
  EXPECT_EQ(FormatLoss(0), "0.0000");
  EXPECT_EQ(FormatLoss(1.234e-5), "1.23e-05");
  EXPECT_EQ(FormatLoss(-1e300), "-1.00e+300");
}

TEST(TextFormatTest, TakesTheControlOutOfText) {
  EXPECT_EQ(Printable("a\x1b[31mb\n\x7f"), "a?[31mb??");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m \xc3\xa4"),
            "?31m \xc3\xa4");
}

}  // namespace
}  // namespace lockstep::telemetry
