#include "common/log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "common/wall_time.h"

namespace lockstep::log {
namespace {

class LogFormatTest : public testing::Test {
 protected:
  ~LogFormatTest() override { SetFormat(Format::kText); }
};

TEST_F(LogFormatTest, IsTextUnlessAskedFor) {
  EXPECT_EQ(Line(Level::kError, "lockstep", "no \"room\""), "lockstep: no \"room\"");
}

TEST_F(LogFormatTest, IsOneObjectALineWithWhatElseIsKnown) {
  SetFormat(Format::kJson);
  const std::string line = Line(Level::kWarning, "lockstep", "no \"room\"\nat \xff all");
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["level"], "warning");
  EXPECT_EQ(json["source"], "lockstep");
  EXPECT_EQ(json["message"], "no \"room\"\nat \xEF\xBF\xBD all");
  EXPECT_TRUE(ParseTime(json["time"].get<std::string>())) << line;

  const auto progress = nlohmann::json::parse(JsonLine(
      Level::kInfo, "lockstep", "step 7", {{"step", 7}, {"loss", std::nan("")}, {"stream", "stdout"}}));
  EXPECT_EQ(progress["step"], 7);
  EXPECT_TRUE(progress["loss"].is_null());
  EXPECT_EQ(progress["stream"], "stdout");
}

TEST_F(LogFormatTest, IsThatOfItsOwnMessagesToo) {
  SetFormat(Format::kJson);
  testing::internal::CaptureStderr();
  Initialize(Level::kInfo, "rank 3");
  Debug("not shown");
  Info("shown");
  WriteLine(Level::kError, "lockstep", "so is this");
  std::istringstream lines(testing::internal::GetCapturedStderr());
  std::string first, second, more;
  ASSERT_TRUE(std::getline(lines, first));
  ASSERT_TRUE(std::getline(lines, second));
  EXPECT_FALSE(std::getline(lines, more)) << more;
  EXPECT_EQ(nlohmann::json::parse(first)["source"], "rank 3");
  EXPECT_EQ(nlohmann::json::parse(first)["message"], "shown");
  EXPECT_EQ(nlohmann::json::parse(second)["level"], "error");
}

}  // namespace
}  // namespace lockstep::log
