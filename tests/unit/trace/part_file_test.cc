#include "trainer/trace/part_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace lockstep::trainer::trace {
namespace {

using nlohmann::json;
using std::chrono::nanoseconds;
using ::testing::HasSubstr;

Clock::time_point At(int64_t ns) { return Clock::time_point(nanoseconds(ns)); }

std::vector<json> EventsOf(const std::string& part) {
  std::vector<json> events;
  std::istringstream lines(part);
  for (std::string line; std::getline(lines, line);) events.push_back(json::parse(line));
  return events;
}

TEST(PartFileTest, NamesTheRankAndItsTracks) {
  const Span spans[] = {{.name = "forward", .step = 1},
                        {.name = "data wait", .track = Track::kData, .step = 1},
                        {.name = "backward", .step = 1}};
  std::set<std::string> names;
  std::set<int> threads;
  for (const json& event :
       EventsOf(PartOf({.rank = 3, .role = "worker", .role_rank = 1, .device = "GPU:0"}, spans))) {
    EXPECT_EQ(event.at("pid"), 4);
    if (event.at("ph") != "M") {
      EXPECT_TRUE(threads.contains(event.at("tid"))) << event;
    } else if (event.at("args").contains("name")) {
      names.insert(event.at("args").at("name"));
      if (event.at("name") == "thread_name") threads.insert(event.at("tid").get<int>());
    }
  }
  EXPECT_EQ(names, (std::set<std::string>{"rank 3 (worker 1, GPU:0)", "compute", "data"}));
}

TEST(PartFileTest, ASpanIsACompleteEventInMicroseconds) {
  // A clock that has run for a hundred days: the digits behind the point are all there.
  constexpr int64_t kLong = 8'640'000'000'000'123;
  const Span span{.name = "all-reduce",
                  .track = Track::kCommunication,
                  .begin = At(kLong),
                  .end = At(kLong + 1'002'003),
                  .step = 12,
                  .bucket = 0,
                  .bytes = 4096};
  const std::string part = PartOf({.clock_offset = nanoseconds(-23)}, std::span(&span, 1));
  EXPECT_THAT(part, HasSubstr(R"("ts":8640000000000.100,"dur":1002.003)"));
  const json event = EventsOf(part).back();
  EXPECT_EQ(event.at("ph"), "X");
  EXPECT_EQ(event.at("name"), "all-reduce");
  EXPECT_EQ(event.at("cat"), "communication");
  EXPECT_EQ(event.at("args"), (json{{"step", 12}, {"bucket", 0}, {"bytes", 4096}}));
}

TEST(PartFileTest, LeavesAWholeFileOrNone) {
  const testing::TemporaryFolder folder;
  Recorder recorder({});
  recorder.BeginStep(1);
  { const Scope scope(&recorder, Track::kCompute, "forward"); }
  const std::string file = folder.File("rank-0.jsonl");
  ASSERT_TRUE(WritePart(file, {}, recorder).ok());
  EXPECT_EQ(EventsOf(testing::ReadText(file)).back().at("name"), "forward");
  EXPECT_FALSE(std::filesystem::exists(file + ".part"));

  const Status missing = WritePart(folder.File("nowhere/rank-0.jsonl"), {}, recorder);
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.message(), HasSubstr("nowhere/rank-0.jsonl.part"));
}

}  // namespace
}  // namespace lockstep::trainer::trace
