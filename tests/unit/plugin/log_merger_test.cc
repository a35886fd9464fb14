#include "launcher/plugin/log_merger.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace lockstep::plugin {
namespace {

using std::chrono::milliseconds;

TEST(LogLineTest, HasItsTimeToTheNanosecond) {
  const LogLine line = ParseLogLine("2026-01-31T12:00:00.12345678Z [rank 3] step 7", 5);
  EXPECT_EQ(line.time, 1'769'860'800'123'456'780);
  EXPECT_EQ(line.text, "[rank 3] step 7");
  EXPECT_EQ(RankOf(line.text), 3);
  EXPECT_EQ(ParseLogLine("2026-01-31T13:00:00+01:00 x", 5).time, 1'769'860'800'000'000'000);
  EXPECT_EQ(ParseLogLine("2026-01-31T12:00:00Z", 5).text, "");
  EXPECT_EQ(SinceTime(line.time), "2026-01-31T12:00:00Z");
}

TEST(LogLineTest, WithoutATimeItIsTheLastOnes) {
  const LogLine line = ParseLogLine("no time here", 5);
  EXPECT_EQ(line.time, 5);
  EXPECT_EQ(line.text, "no time here");
}

TEST(LogLineTest, OnlyALineOfARankHasARank) {
  for (const char* text : {"lockstep: [rank 3] x", "[rank x] y", "[rank 3", "[rank -3] x", "[rank ] x", ""}) {
    EXPECT_EQ(RankOf(text), std::nullopt) << text;
  }
}

TEST(LineSplitterTest, PutsPiecesTogetherAndCutsWhatNeverEnds) {
  std::vector<std::string> lines;
  const auto take = [&](const std::string& line) {
    lines.push_back(line);
    return lines.size() < 4;
  };
  LineSplitter splitter;
  EXPECT_TRUE(splitter.Add("on", take));
  EXPECT_TRUE(splitter.Add("e\ntwo\nth", take));
  EXPECT_TRUE(splitter.Flush(take));
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "two", "th"}));
  EXPECT_FALSE(splitter.Add("four\nfive\n", take));
  EXPECT_EQ(lines.back(), "four");
  lines.clear();
  EXPECT_TRUE(splitter.Add(std::string(3 << 20, 'x'), take));
  EXPECT_EQ(lines.size(), 1u);  // what came at once
  EXPECT_TRUE(splitter.Flush(take));
}

std::vector<std::string> All(LogMerger& merger) {
  std::vector<std::string> lines;
  while (const auto line = merger.Next()) lines.push_back(line->source + " " + line->line.text);
  return lines;
}

TEST(LogMergerTest, GivesTheLinesOfAllInTheOrderOfTheirTimes) {
  LogMerger merger(std::nullopt);
  const int a = merger.Open("a"), b = merger.Open("b");
  merger.Add(a, {1, "one"});
  merger.Add(a, {4, "four"});
  merger.Add(b, {2, "two"});
  merger.Add(b, {3, "three"});
  merger.Close(a);
  merger.Close(b);
  merger.Finish();
  EXPECT_EQ(All(merger), (std::vector<std::string>{"a one", "b two", "b three", "a four"}));
}

TEST(LogMergerTest, WithoutPatienceItWaitsForTheSilent) {
  LogMerger merger(std::nullopt);
  const int fast = merger.Open("fast"), slow = merger.Open("slow");
  merger.Finish();
  std::jthread writer([&] {
    merger.Add(fast, {2, "two"});
    merger.Close(fast);
    std::this_thread::sleep_for(milliseconds(50));  // so that a merger that does not wait is found out
    merger.Add(slow, {1, "one"});
    merger.Close(slow);
  });
  EXPECT_EQ(All(merger), (std::vector<std::string>{"slow one", "fast two"}));
}

TEST(LogMergerTest, WithPatienceTheSilentHoldNobodyUp) {
  LogMerger merger(milliseconds(20));
  const int a = merger.Open("a");
  merger.Open("silent");
  merger.Add(a, {1, "one"});
  const auto line = merger.Next();
  ASSERT_TRUE(line);
  EXPECT_EQ(line->line.text, "one");
}

TEST(LogMergerTest, ASourceThatIsFarAheadWaits) {
  LogMerger merger(std::nullopt);
  const int fast = merger.Open("fast"), slow = merger.Open("slow");
  merger.Finish();
  std::atomic<int> added = 0;
  std::jthread writer([&] {
    for (int i = 0; i < 5000; ++i, ++added) merger.Add(fast, {i + 10, "x"});
    merger.Close(fast);
  });
  while (added < 1024) std::this_thread::yield();
  EXPECT_LE(added, 1025);
  merger.Add(slow, {1, "first"});
  merger.Close(slow);
  EXPECT_EQ(All(merger).size(), 5001u);
}

TEST(LogMergerTest, StopLetsEverybodyGo) {
  LogMerger merger(std::nullopt);
  const int source = merger.Open("a");
  merger.Open("b");
  std::atomic<bool> refused = false;
  std::jthread writer([&] {
    while (merger.Add(source, {1, "x"})) {
    }
    refused = true;
  });
  std::jthread reader([&] { EXPECT_EQ(merger.Next(), std::nullopt); });
  merger.Stop();
  writer.join();
  EXPECT_TRUE(refused);
}

}  // namespace
}  // namespace lockstep::plugin
