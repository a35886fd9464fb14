#include "common/contract/control_line.h"

#include <gtest/gtest.h>

namespace lockstep::contract {
namespace {

std::string_view WithoutNewline(const std::string& line) {
  return std::string_view(line).substr(0, line.size() - 1);
}

TEST(ControlLineTest, AskingToRegroupSurvivesTheWayThroughALine) {
  const auto line = EncodeControl(RegroupControl{});
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(*line, "{\"control\":\"regroup\"}\n");
  const auto control = ParseControl(WithoutNewline(*line));
  ASSERT_TRUE(control.ok()) << control.status().ToString();
  EXPECT_TRUE(std::holds_alternative<RegroupControl>(*control));
}

TEST(ControlLineTest, AnEnvironmentSurvivesTheWayThroughALine) {
  const std::map<std::string, std::string> environment = {
      {"RANK", "3"},
      {"TF_CONFIG", R"({"cluster":{"worker":["a:1","b:2"]}})"},
      {"LINES", "a\nb\t\"\\"},
      {"EMPTY", ""},
      {"NOT_ASCII", "größe"}};
  const auto line = EncodeControl(GenerationControl{environment});
  ASSERT_TRUE(line.ok()) << line.status().ToString();
  EXPECT_EQ(line->find('\n'), line->size() - 1);
  const auto control = ParseControl(WithoutNewline(*line));
  ASSERT_TRUE(control.ok()) << control.status().ToString();
  EXPECT_EQ(std::get<GenerationControl>(*control).environment, environment);
}

TEST(ControlLineTest, IgnoresKeysItDoesNotKnow) {
  EXPECT_TRUE(ParseControl(R"({"control":"regroup","why":{"rank":[3]}})").ok());
}

TEST(ControlLineTest, RefusesWhatIsNoControlLine) {
  for (const char* line :
       {"", "hello", "[]", "{}", "null", R"({"control":1})", R"({"control":"nap"})",
        R"({"control":"generation"})", R"({"control":"generation","environment":[]})",
        R"({"control":"generation","environment":{}})", R"({"control":"generation","environment":"RANK=1"})",
        R"({"control":"generation","environment":{"RANK":1}})",
        R"({"control":"generation","environment":{"RANK":null}})",
        R"({"control":"generation","environment":{"":"1"}})",
        R"({"control":"generation","environment":{"A=B":"1"}})",
        R"({"control":"generation","environment":{"A":"1\u0000"}})", "{\"control\":\"regroup\"}\n{}",
        "{\"control\":\"regroup\xff\"}", "{\"control\":\"generation\",\"environment\":{\"A\":\"\xff\"}}"}) {
    EXPECT_EQ(ParseControl(line).status().code(), StatusCode::kInvalidArgument) << line;
  }
}

TEST(ControlLineTest, RefusesWhatIsTooLongAndSurvivesWhatIsNestedDeeply) {
  EXPECT_FALSE(
      ParseControl(R"({"control":"regroup","a":")" + std::string(kMaxControlBytes, 'x') + "\"}").ok());
  EXPECT_FALSE(ParseControl(std::string(kMaxControlBytes - 1, '[')).ok());
  const size_t depth = kMaxControlBytes / 2 - 100;
  EXPECT_TRUE(
      ParseControl(R"({"control":"regroup","a":)" + std::string(depth, '[') + std::string(depth, ']') + "}")
          .ok());
}

TEST(ControlLineTest, WritesNoEnvironmentThatNobodyCouldRead) {
  const auto encode = [](const std::string& name, const std::string& value) {
    return EncodeControl(GenerationControl{{{name, value}}}).status().code();
  };
  EXPECT_EQ(encode("A", "1"), StatusCode::kOk);
  EXPECT_EQ(encode("", "1"), StatusCode::kInvalidArgument);
  EXPECT_EQ(encode("A=B", "1"), StatusCode::kInvalidArgument);
  EXPECT_EQ(encode("A", std::string("1\0", 2)), StatusCode::kInvalidArgument);
  EXPECT_EQ(encode("A", "\xff"), StatusCode::kInvalidArgument);
  EXPECT_EQ(EncodeControl(GenerationControl{}).status().code(), StatusCode::kInvalidArgument);

  // Exactly 64 KiB is the most.
  const size_t around = EncodeControl(GenerationControl{{{"A", ""}}})->size();
  const auto longest = EncodeControl(GenerationControl{{{"A", std::string(kMaxControlBytes - around, 'x')}}});
  ASSERT_TRUE(longest.ok());
  EXPECT_TRUE(ParseControl(WithoutNewline(*longest)).ok());
  EXPECT_EQ(encode("A", std::string(kMaxControlBytes - around + 1, 'x')), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::contract
