#include "launcher/history/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/telemetry/job_state.h"
#include "launcher/telemetry/run_record.h"
#include "tests/support/temporary_folder.h"

// What telemetry/run_record.h writes is what history/run.h reads.
namespace lockstep::history {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::chrono::system_clock::time_point kNoon{std::chrono::seconds(1'769'860'800)};

telemetry::Progress At(int64_t step, double loss = 0.5) {
  telemetry::Progress progress;
  progress.step = step;
  progress.loss = loss;
  progress.samples_per_second = 1000;
  progress.last_updated = kNoon;
  return progress;
}

class RunTest : public ::testing::Test {
 protected:
  telemetry::RunRecord Record() {
    return telemetry::RunRecord(Folder(), [this](const std::string& line) { warnings_.push_back(line); });
  }
  std::string Folder() const { return folder_.path().string(); }
  testing::TemporaryFolder folder_;
  std::vector<std::string> warnings_;
};

TEST_F(RunTest, StepsComeBackAsTheyWere) {
  auto record = Record();
  record.Step(At(1, 2.5), 0.1);
  record.Step(At(2, std::nan("")), 0.2);
  record.Finished(true, nullptr, 0.3, kNoon);
  const std::vector<Point> points = ReadPoints(Folder());
  ASSERT_THAT(points, SizeIs(2));
  EXPECT_EQ(points[0].step, 1);
  EXPECT_EQ(points[0].seconds, 0.1);
  EXPECT_EQ(points[0].loss, 2.5);
  EXPECT_EQ(points[0].samples_per_second, 1000);
  EXPECT_FALSE(points[0].accuracy);
  EXPECT_FALSE(points[1].loss);  // JSON has no NaN
}

TEST_F(RunTest, ALongRunIsThinnedAsItGrowsAndKeepsItsEnd) {
  auto record = Record();
  constexpr int64_t kSteps = 1'000'000;
  for (int64_t step = 1; step < kSteps; ++step) {
    if (record.WantsStep(step)) record.Step(At(step), 0);
  }
  const telemetry::Progress last = At(kSteps);
  record.Finished(true, &last, 0, kNoon);
  const std::vector<Point> points = ReadPoints(Folder());
  // A thousand of each stride: 1 + 2 + 4 + … of them come to a million before the tenth is over.
  EXPECT_LE(points.size(), 10'001u);
  EXPECT_GE(points.size(), 9'000u);
  EXPECT_EQ(points[999].step, 1000);
  EXPECT_EQ(points.back().step, kSteps);
}

TEST_F(RunTest, StepsThatAreDoneAgainAreKeptAgain) {
  auto record = Record();
  for (const int64_t step : {1, 2, 3}) record.Step(At(step), 0);
  EXPECT_FALSE(record.WantsStep(3));
  EXPECT_TRUE(record.WantsStep(2));  // after a checkpoint
  record.Step(At(2), 0);
  EXPECT_THAT(ReadPoints(Folder()), SizeIs(4));
}

TEST_F(RunTest, EventsAreLinesForPeople) {
  auto record = Record();
  record.Generation(0, kNoon);
  record.RankExited(2, 137, kNoon);
  telemetry::Failure failure;
  failure.rank = 2;
  failure.message = "killed by \x1b[2J signal 9";
  record.Restarting("Signal", &failure, kNoon);
  record.Evaluation({.split = "test", .epoch = 1, .loss = 0.25, .accuracy = 0.5, .seconds = 2}, 98, kNoon);
  record.Checkpoint({.step = 100, .path = "/c", .seconds = 0.5, .ok = false, .message = "full"}, kNoon);
  record.Resumed(100, kNoon);
  record.Finished(false, nullptr, 0, kNoon);
  EXPECT_THAT(
      ReadEvents(Folder(), 100),
      ElementsAre("12:00:00  Generation   generation 0",  //
                  "12:00:00  RankExited   rank 2, exit code 137",
                  "12:00:00  Restarting   reason Signal, rank 2, message killed by ?[2J signal 9",
                  "12:00:00  Evaluation   split test, epoch 1, loss 0.2500, accuracy 0.5000, seconds 2.0000",
                  "12:00:00  Checkpoint   step 100, path /c, seconds 0.5000, ok false, message full",
                  "12:00:00  Resumed      step 100", "12:00:00  Finished     succeeded false"));
  EXPECT_THAT(ReadEvents(Folder(), 1), ElementsAre(HasSubstr("Finished")));
}

TEST_F(RunTest, EventsAreBoundedAndTheLastOneIsThere) {
  auto record = Record();
  for (int64_t i = 0; i < telemetry::RunRecord::kMostEvents + 10; ++i) record.Resumed(i, kNoon);
  record.Finished(true, nullptr, 0, kNoon);
  const auto events = ReadEvents(Folder(), 1'000'000);
  EXPECT_THAT(events, SizeIs(telemetry::RunRecord::kMostEvents + 1));
  EXPECT_THAT(events.back(), HasSubstr("Finished"));
}

TEST_F(RunTest, LinesThatAreNotOursAreLeftOut) {
  folder_.Write("metrics.jsonl", "{\"seconds\": 1, \"step\": 1}\nnull\n[1]\n{\"seconds\": \"x\"}\n{\"sec");
  EXPECT_THAT(ReadPoints(Folder()), SizeIs(1));
  folder_.Write("events.jsonl", "{\"time\": 7}\n\n{}");
  EXPECT_THAT(ReadEvents(Folder(), 10), SizeIs(0));
}

TEST_F(RunTest, AFullDiskIsSaidOnceAndNoFolderIsNoError) {
  telemetry::RunRecord record("/nowhere", [this](const std::string& line) { warnings_.push_back(line); });
  record.Step(At(1), 0);
  record.Resumed(1, kNoon);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("metrics and events are not kept")));
}

TEST_F(RunTest, AFolderWithoutAStatusIsNone) {
  EXPECT_FALSE(ReadRun(Folder()).ok());
  folder_.Write("status.json", R"({"name": "mnist", "phase": "Succeeded", "restarts": 1,
    "startTime": "2026-01-31T12:00:00Z", "completionTime": "2026-01-31T12:01:30Z",
    "progress": {"step": 392, "loss": "0.31"}})");
  const Result<history::Run> run = ReadRun(Folder());
  ASSERT_TRUE(run.ok()) << run.status().message();
  EXPECT_EQ(run->name, "mnist/" + folder_.path().filename().string());
  EXPECT_EQ(run->took_seconds, 90);
  EXPECT_EQ(run->step, 392);
  EXPECT_EQ(run->loss, "0.31");
  EXPECT_EQ(run->restarts, 1);
  folder_.Write("status.json", "[]");
  EXPECT_TRUE(ReadRun(Folder()).ok());
}

}  // namespace
}  // namespace lockstep::history
