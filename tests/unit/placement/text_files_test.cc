#include "launcher/placement/text_files.h"

#include <gtest/gtest.h>

namespace lockstep::placement {
namespace {

TEST(NumberListTest, ReadsTheKernelsFormat) {
  EXPECT_EQ(ParseNumberList("0-3,8,10-11\n"), (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(ParseNumberList("5"), std::vector<int>{5});
  EXPECT_EQ(ParseNumberList("\n"), std::vector<int>{});
}

TEST(NumberListTest, RefusesWhatIsNone) {
  for (const char* text : {"a", "1,", "3-1", "-1", "1-", "0-99999999", "1 2"}) {
    EXPECT_EQ(ParseNumberList(text), std::nullopt) << text;
  }
}

TEST(NumberListTest, WritesWhatItReads) {
  for (const char* text : {"0-3,8,10-11", "7", "", "0,2,4"}) {
    EXPECT_EQ(FormatNumberList(*ParseNumberList(text)), text);
  }
}

TEST(ParseIntegerTest, TakesNothingButAnInteger) {
  EXPECT_EQ(ParseInteger(" -42\n"), -42);
  for (const char* text : {"", "max", "1.5", "1 2", "0x10", "99999999999999999999"}) {
    EXPECT_EQ(ParseInteger(text), std::nullopt) << text;
  }
}

TEST(ReadTextTest, StopsAtTheLimitAndSaysWhenThereIsNoFile) {
  EXPECT_EQ(ReadText("/proc/self/status", 5), "Name:");
  EXPECT_EQ(ReadText("/nonexistent"), std::nullopt);
}

}  // namespace
}  // namespace lockstep::placement
