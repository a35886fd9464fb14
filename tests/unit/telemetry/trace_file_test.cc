#include "launcher/telemetry/trace_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"

namespace lockstep::telemetry {
namespace {

using lockstep::testing::ReadText;
using lockstep::testing::TemporaryFolder;
using nlohmann::json;

constexpr char kForward[] =
    R"({"name":"forward","cat":"compute","ph":"X","pid":1,"tid":7,"ts":8640000000000.123,"dur":2.000,"args":{}})";

TEST(TraceFileTest, HasWhatTheRanksHaveLeft) {
  const TemporaryFolder folder;
  const std::string parts = folder.File("trace"), file = folder.File("trace.json");
  ASSERT_TRUE(ClearTraceParts(parts).ok());
  folder.Write("trace/rank-0.jsonl", std::string(kForward) + "\n" + kForward + "\n");
  folder.Write("trace/rank-1.jsonl", std::string(kForward) + "\n");
  // A rank that was killed over it.
  folder.Write("trace/rank-2.jsonl.part", R"({"name":"forw)");
  const auto ranks = MergeTrace(parts, file, {.job = "a \"job\"", .run = "/run", .steps = 20});
  ASSERT_TRUE(ranks.ok()) << ranks.status().message();
  EXPECT_EQ(*ranks, 2);
  const json trace = json::parse(ReadText(file));
  EXPECT_EQ(trace.at("traceEvents").size(), 3u);
  EXPECT_EQ(trace.at("traceEvents").at(2).at("name"), "forward");
  EXPECT_EQ(trace.at("otherData"), (json{{"job", "a \"job\""}, {"run", "/run"}, {"steps", 20}}));
  // As they are: a number that went through a double would have lost its end.
  EXPECT_NE(ReadText(file).find("8640000000000.123"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(parts));
  struct stat status {};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(TraceFileTest, OfNoRankThereIsNoFile) {
  const TemporaryFolder folder;
  const auto ranks = MergeTrace(folder.File("trace"), folder.File("trace.json"), {});
  ASSERT_TRUE(ranks.ok());
  EXPECT_EQ(*ranks, 0);
  EXPECT_FALSE(std::filesystem::exists(folder.File("trace.json")));
}

TEST(TraceFileTest, ANewGenerationBeginsWithNothing) {
  const TemporaryFolder folder;
  const std::string parts = folder.File("trace");
  ASSERT_TRUE(ClearTraceParts(parts).ok());
  folder.Write("trace/rank-3.jsonl", kForward);
  ASSERT_TRUE(ClearTraceParts(parts).ok());
  EXPECT_TRUE(std::filesystem::is_empty(parts));
}

TEST(TraceFileTest, WhatCannotBeWrittenIsNamed) {
  const TemporaryFolder folder;
  ASSERT_TRUE(ClearTraceParts(folder.File("trace")).ok());
  folder.Write("trace/rank-0.jsonl", kForward);
  const auto ranks = MergeTrace(folder.File("trace"), folder.File("nowhere/trace.json"), {});
  ASSERT_FALSE(ranks.ok());
  EXPECT_NE(ranks.status().message().find("nowhere/trace.json"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::telemetry
