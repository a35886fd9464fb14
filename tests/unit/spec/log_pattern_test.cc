#include "launcher/spec/log_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::spec {
namespace {

using ::testing::HasSubstr;

LogPattern MustCompile(const std::string& text) {
  Result<LogPattern> pattern = LogPattern::Compile(text);
  EXPECT_TRUE(pattern.ok()) << pattern.status().ToString();
  return *pattern;
}

TEST(LogPatternTest, ReadsTheGroupsThatItHas) {
  const LogPattern pattern = MustCompile(
      R"(Epoch (?<epoch>\d+) \[(?<samples>\d+)/60000\] step (?P<step>\d+)/(?<total>\d+).*[Ll]oss[:=] ?(?<loss>\S+))");
  const auto read = pattern.Match("INFO Epoch 3 [640/60000] step 20/900 lr 0.1 Loss: 2.5e-1 \xff");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->step, 20);
  EXPECT_EQ(read->total, 900);
  EXPECT_EQ(read->epoch, 3);
  EXPECT_EQ(read->samples, 640);
  EXPECT_EQ(read->loss, 0.25);
}

TEST(LogPatternTest, LeavesOutWhatIsNotThere) {
  const LogPattern pattern = MustCompile("step (?<step>[^ ]+)(?: of (?<total>[^ ]+))?(?: loss (?<loss>.*))?");
  const auto read = pattern.Match("step 7");
  ASSERT_TRUE(read);
  EXPECT_FALSE(read->total);
  EXPECT_FALSE(read->epoch);
  EXPECT_TRUE(std::isnan(read->loss));
  EXPECT_TRUE(std::isnan(pattern.Match("step 7 loss nan")->loss));
  EXPECT_TRUE(std::isnan(pattern.Match("step 7 loss ?")->loss));
  EXPECT_FALSE(pattern.Match("step 7 of many")->total);
}

TEST(LogPatternTest, TakesNoStepFromWhatIsNoCount) {
  const LogPattern pattern = MustCompile("step (?<step>[^ ]+)");
  for (const char* line : {"", "epoch 7", "step seven", "step -1", "step 1.5", "step 9223372036854775808",
                           "step 9223372036854775807"}) {
    EXPECT_FALSE(pattern.Match(line)) << line;
  }
}

TEST(LogPatternTest, IsNotMisledByWhatOnlyLooksLikeAGroup) {
  EXPECT_EQ(MustCompile(R"([(?<]\(\?<x> (?<step>\d+))").Match("((?<x> 4")->step, 4);
}

TEST(LogPatternTest, SaysWhatIsWrong) {
  const auto error = [](const std::string& text) { return LogPattern::Compile(text).status().message(); };
  EXPECT_THAT(error("loss (?<loss>.*)"), HasSubstr("has no group named step"));
  EXPECT_THAT(error("(?<step>\\d+) (?<accuracy>.*)"), HasSubstr("has a group named \"accuracy\""));
  EXPECT_THAT(error("(?<step>\\d+"), HasSubstr("missing )"));
  EXPECT_THAT(error("(?<step>\\d+)(?=x)"), HasSubstr("is no regular expression of RE2's"));
  EXPECT_THAT(error("(?<step>(\\d{1000}){1000})"), HasSubstr("is no regular expression of RE2's"));
}

// What takes a backtracking engine for ever.
TEST(LogPatternTest, TakesTimeInProportionToTheLine) {
  const LogPattern pattern = MustCompile("(a*)*(a*)*b(?<step>\\d+)");
  EXPECT_FALSE(pattern.Match(std::string(16 * 1024, 'a')));
}

}  // namespace
}  // namespace lockstep::spec
