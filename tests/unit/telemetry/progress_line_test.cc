#include "launcher/telemetry/progress_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/telemetry/fake_time.h"

namespace lockstep::telemetry {
namespace {

using std::chrono::seconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

JobSnapshot Running() {
  JobSnapshot snapshot;
  snapshot.phase = JobPhase::kRunning;
  Progress progress;
  progress.step = 196;
  progress.total_steps = 392;
  progress.epoch = 1;
  progress.loss = 0.31;
  progress.accuracy = 0.954;
  progress.samples_per_second = 90321;
  progress.remaining_seconds = 40.5;
  snapshot.progress = progress;
  return snapshot;
}

size_t Columns(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

TEST(ProgressLineTest, SaysEverythingWhereThereIsRoom) {
  EXPECT_EQ(FormatProgressLine(Running(), {.width = 200}),
            "[===============---------------]  step 196/392  epoch 2  loss 0.3100  acc 0.9540  90,321 "
            "samples/s  41 s left");
  EXPECT_EQ(FormatPlainProgress(Running()),
            "step 196/392  epoch 2  loss 0.3100  acc 0.9540  90,321 samples/s  41 s left");
}

TEST(ProgressLineTest, TheLossAveragedIsBesideTheLossAndGoesFirst) {
  JobSnapshot snapshot = Running();
  snapshot.progress->loss_average = 0.33;
  EXPECT_EQ(FormatPlainProgress(snapshot),
            "step 196/392  epoch 2  loss 0.3100  mean 0.3300  acc 0.9540  90,321 samples/s  41 s left");
  EXPECT_EQ(FormatProgressLine(snapshot, {.width = 75}), FormatPlainProgress(Running()));
}

TEST(ProgressLineTest, NamesTheRanksThatDoNotTrainWhileOthersDo) {
  JobSnapshot snapshot = Running();
  for (int i = 0; i < 4; ++i) {
    RankSnapshot rank;
    rank.identity.rank = i;
    rank.state = RankState::kRunning;
    rank.phase = RankPhase::kTraining;
    snapshot.ranks.push_back(rank);
  }
  EXPECT_EQ(FormatPlainProgress(snapshot), FormatPlainProgress(Running()));
  snapshot.ranks[2].phase = RankPhase::kCheckpointing;
  EXPECT_THAT(FormatPlainProgress(snapshot), EndsWith("41 s left  rank 2 Checkpointing"));
  snapshot.ranks[3].phase = RankPhase::kCheckpointing;
  EXPECT_THAT(FormatPlainProgress(snapshot), EndsWith("  2 ranks Checkpointing"));
  snapshot.ranks[3].identity.steps = false;  // an evaluator never trains
  EXPECT_THAT(FormatPlainProgress(snapshot), EndsWith("  rank 2 Checkpointing"));
  for (RankSnapshot& rank : snapshot.ranks) rank.phase = RankPhase::kEvaluating;
  EXPECT_THAT(FormatPlainProgress(snapshot), EndsWith("left"));
}

TEST(ProgressLineTest, DrawsWithBlocksAndColoursWhereAllowed) {
  const std::string line = FormatProgressLine(Running(), {.width = 200, .unicode = true});
  EXPECT_THAT(line, StartsWith("━━━━━━━━━━━━━━━───────────────  step"));
  EXPECT_THAT(line, Not(HasSubstr("\x1b")));
  EXPECT_THAT(FormatProgressLine(Running(), {.width = 200, .color = true}), HasSubstr("\x1b[32m====="));
}

TEST(ProgressLineTest, IsNeverWiderThanTheTerminal) {
  JobSnapshot failed = Running();
  failed.phase = JobPhase::kRestarting;
  failed.last_failure = Failure{.message = "rank 1 war nicht zu erreichen, äöü äöü äöü äöü äöü äöü äöü"};
  for (int width = 0; width < 130; ++width) {
    for (const bool unicode : {false, true}) {
      const ProgressStyle style{.width = width, .unicode = unicode};
      EXPECT_LE(Columns(FormatProgressLine(Running(), style)), static_cast<size_t>(width));
      EXPECT_LE(Columns(FormatProgressLine(failed, style)), static_cast<size_t>(width));
      EXPECT_LE(Columns(FormatProgressLine(JobSnapshot(), style)), static_cast<size_t>(width));
    }
  }
}

TEST(ProgressLineTest, WhatMattersLeastGoesFirst) {
  EXPECT_EQ(FormatProgressLine(Running(), {.width = 75}),
            "step 196/392  epoch 2  loss 0.3100  acc 0.9540  90,321 samples/s  41 s left");
  EXPECT_EQ(FormatProgressLine(Running(), {.width = 63}),
            "step 196/392  epoch 2  loss 0.3100  90,321 samples/s  41 s left");
  EXPECT_EQ(FormatProgressLine(Running(), {.width = 25}), "step 196/392  loss 0.3100");
  EXPECT_EQ(FormatProgressLine(Running(), {.width = 8}), "step 196");
}

TEST(ProgressLineTest, WithoutATotalThereIsNoBar) {
  JobSnapshot snapshot = Running();
  snapshot.progress->total_steps = 0;
  snapshot.progress->remaining_seconds.reset();
  EXPECT_THAT(FormatProgressLine(snapshot, {.width = 120}), StartsWith("step 196  epoch 2"));
}

TEST(ProgressLineTest, BeforeTheFirstStepItSaysWhatIsWaitedFor) {
  JobSnapshot snapshot;
  snapshot.phase = JobPhase::kRunning;
  snapshot.ranks.resize(2);
  snapshot.ranks[0].state = RankState::kRunning;
  EXPECT_EQ(FormatPlainProgress(snapshot), "starting, 1 of 2 processes run");
  snapshot.ranks[1].state = RankState::kRunning;
  snapshot.ranks[0].phase = RankPhase::kTraining;
  snapshot.ranks[1].phase = RankPhase::kInitializing;
  EXPECT_EQ(FormatPlainProgress(snapshot), "2 processes are initializing");
  snapshot.ranks[1].phase = RankPhase::kTraining;
  EXPECT_EQ(FormatPlainProgress(snapshot), "waiting for the first step");
}

TEST(ProgressLineTest, ARestartSaysWhyWithoutTerminalEscapes) {
  JobSnapshot snapshot = Running();
  snapshot.phase = JobPhase::kRestarting;
  snapshot.restarts = 2;
  snapshot.last_failure = Failure{.message = "rank 1: \x1b[2J"};
  EXPECT_EQ(FormatProgressLine(snapshot, {.width = 80}), "restart 2: rank 1: ?[2J");
}

TEST(ProgressStyleTest, FollowsTheLocaleAndNoColor) {
  const auto style = [](const char* all, const char* ctype, const char* lang, const char* no_color) {
    return ProgressStyle::FromEnvironment(80, all, ctype, lang, no_color);
  };
  EXPECT_TRUE(style(nullptr, nullptr, "en_US.UTF-8", nullptr).unicode);
  EXPECT_TRUE(style("", "C.utf8", "C", nullptr).unicode);
  EXPECT_FALSE(style("C", "C.UTF-8", "en_US.UTF-8", nullptr).unicode);
  EXPECT_FALSE(style(nullptr, nullptr, nullptr, nullptr).unicode);
  EXPECT_TRUE(style(nullptr, nullptr, nullptr, nullptr).color);
  EXPECT_TRUE(style(nullptr, nullptr, nullptr, "").color);  // no-color.org: set and not empty
  EXPECT_FALSE(style(nullptr, nullptr, nullptr, "1").color);
}

TEST(ProgressThrottleTest, PrintsTheFirstTheLastEpochEndsAndOneAnInterval) {
  ProgressThrottle throttle(seconds(10));
  EXPECT_TRUE(throttle.ShouldPrint(1, 300, 0, At(0)));
  EXPECT_FALSE(throttle.ShouldPrint(2, 300, 0, At(1)));
  EXPECT_FALSE(throttle.ShouldPrint(99, 300, 0, At(9.9)));
  EXPECT_TRUE(throttle.ShouldPrint(100, 300, 0, At(10)));
  EXPECT_TRUE(throttle.ShouldPrint(101, 300, 1, At(10.1)));
  EXPECT_FALSE(throttle.ShouldPrint(102, 300, 1, At(10.2)));
  EXPECT_TRUE(throttle.ShouldPrint(300, 300, 1, At(10.3)));
  EXPECT_FALSE(throttle.ShouldPrint(300, 300, 1, At(99)));
}

}  // namespace
}  // namespace lockstep::telemetry
