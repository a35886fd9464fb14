#include "launcher/job/regroup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <string>
#include <vector>

namespace lockstep::job {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Real processes that write back what they are told; what they would answer, the tests say.
class RegroupTest : public ::testing::Test {
 protected:
  static Regroup::Place PlaceOf(int local_rank, const std::string& device = "CPU") {
    return {.launch = {.rank = local_rank + 10,
                       .local_rank = local_rank,
                       .role = "worker",
                       .command = {"sh", "-c", "while read -r line <&4; do echo \"$line\" >&3; done"},
                       .environment = {{"PATH", "/usr/bin:/bin"}, {"LOCKSTEP_DEVICE", device}}},
            .environment = {{"RANK", std::to_string(local_rank)}}};
  }
  void Start(const std::vector<Regroup::Place>& places) {
    regroup_.Choose(places);
    ASSERT_TRUE(RunUntil([&] { return regroup_.all_gone(); }));
    std::vector<process::Launch> launches;
    for (const Regroup::Place& place : places) launches.push_back(place.launch);
    ASSERT_TRUE(supervisor_.Start(launches, regroup_.chosen()).ok());
    regroup_.Started();
    for (const auto& place : places) regroup_.Ready(place.launch.local_rank, true);
  }
  bool RunUntil(const std::function<bool()>& done, std::chrono::seconds limit = std::chrono::seconds(30)) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      loop_->RunOnce(milliseconds(20));
    }
    return true;
  }
  bool Told(int local_rank, const std::string& text) {
    return RunUntil([&] { return told_[local_rank].find(text) != std::string::npos; });
  }
  void Stop() { supervisor_.Stop(milliseconds(0), regroup_.Ask()); }
  bool IsParked() const { return supervisor_.state() == process::Supervisor::State::kParked; }

  std::unique_ptr<EventLoop> loop_ = std::move(EventLoop::Create()).value();
  std::map<int, std::string> told_;
  std::vector<int> lost_peers_;
  std::string said_;
  process::Supervisor supervisor_{
      *loop_,
      {.on_event_line = [this](int local_rank,
                               std::string_view line) { told_[local_rank] += std::string(line) + "\n"; },
       .on_exit = [this](process::ExitReport& report) { regroup_.Ended(report.local_rank); }}};
  Regroup regroup_{*loop_,
                   supervisor_,
                   {.answer_limit = milliseconds(100),
                    .unasked_limit = milliseconds(100),
                    .on_lost_peers = [this](int local_rank) { lost_peers_.push_back(local_rank); },
                    .say = [this](const std::string& line) { said_ += line + "\n"; }}};
};

TEST_F(RegroupTest, WhoAnswersGoesOnAndIsToldAs) {
  Start({PlaceOf(0), PlaceOf(1)});
  const pid_t first = supervisor_.pid(0), second = supervisor_.pid(1);
  Stop();
  EXPECT_TRUE(Told(0, R"({"control":"regroup"})"));
  EXPECT_TRUE(regroup_.Answered(0, 5));
  EXPECT_TRUE(regroup_.Answered(1, 6));
  ASSERT_TRUE(RunUntil([&] { return IsParked(); }));
  EXPECT_EQ(regroup_.WhoWaits(), "ranks 10 and 11 keep what they hold (step 5 to 6) and wait");
  Start({PlaceOf(0), PlaceOf(1)});
  EXPECT_EQ(supervisor_.pid(0), first);
  EXPECT_EQ(supervisor_.pid(1), second);
  EXPECT_TRUE(Told(0, R"({"control":"generation","environment":{"RANK":"0"}})"));
  EXPECT_TRUE(Told(1, R"({"control":"generation","environment":{"RANK":"1"}})"));
  EXPECT_EQ(regroup_.WhoWaits(), "");
  EXPECT_THAT(lost_peers_, IsEmpty());
}

TEST_F(RegroupTest, WhoDoesNotAnswerInTimeIsKilled) {
  Start({PlaceOf(0), PlaceOf(1)});
  Stop();
  EXPECT_TRUE(regroup_.Answered(0, 5));
  ASSERT_TRUE(RunUntil([&] { return IsParked(); }));
  EXPECT_EQ(supervisor_.pid(1), 0);
  EXPECT_EQ(said_, "rank 11 does not answer and is started anew\n");
  EXPECT_FALSE(regroup_.Answered(1, 5)) << "too late";
}

TEST_F(RegroupTest, WhoNeverSaidThatItCanIsNeitherAskedNorBelieved) {
  Start({PlaceOf(0), PlaceOf(1)});
  regroup_.Ready(1, false);
  EXPECT_FALSE(regroup_.Answered(1, 5));
  EXPECT_FALSE(regroup_.Answered(7, 5)) << "there is none";
  EXPECT_THAT(regroup_.Ask(), ElementsAre(0));
  EXPECT_TRUE(Told(0, "regroup"));
  EXPECT_THAT(told_[1], IsEmpty());
}

TEST_F(RegroupTest, AnsweringUnaskedIsReportedOnceAfterAWhile) {
  Start({PlaceOf(0), PlaceOf(1)});
  EXPECT_TRUE(regroup_.Answered(1, 5));
  EXPECT_TRUE(regroup_.Answered(0, 5));
  EXPECT_THAT(lost_peers_, IsEmpty());
  ASSERT_TRUE(RunUntil([&] { return !lost_peers_.empty(); }));
  EXPECT_THAT(lost_peers_, ElementsAre(1));
  EXPECT_THAT(regroup_.Ask(), ElementsAre(0, 1)) << "nobody is asked, both are spared";
  Start({PlaceOf(0), PlaceOf(1)});
  EXPECT_TRUE(Told(0, "generation"));
  EXPECT_THAT(told_[0], ::testing::Not(HasSubstr("regroup")));
}

TEST_F(RegroupTest, AnsweringUnaskedIsNoReasonWhenTheGenerationFailedAnyway) {
  Start({PlaceOf(0), PlaceOf(1)});
  EXPECT_TRUE(regroup_.Answered(0, 5));
  Stop();
  EXPECT_TRUE(regroup_.Answered(1, 5));
  ASSERT_TRUE(RunUntil([&] { return IsParked(); }));
  Start({PlaceOf(0), PlaceOf(1)});
  // Longer than both limits: none of the old timers is left.
  bool over = false;
  loop_->After(milliseconds(250), [&] { over = true; });
  ASSERT_TRUE(RunUntil([&] { return over; }));
  EXPECT_THAT(lost_peers_, IsEmpty());
  EXPECT_NE(supervisor_.pid(0), 0);
}

TEST_F(RegroupTest, WhoseDeviceChangesIsStartedAnewAndWhosePlaceIsGoneIsKilled) {
  Start({PlaceOf(0), PlaceOf(1), PlaceOf(2)});
  const pid_t first = supervisor_.pid(0), second = supervisor_.pid(1), third = supervisor_.pid(2);
  Stop();
  for (const int local_rank : {0, 1, 2}) EXPECT_TRUE(regroup_.Answered(local_rank, 5));
  ASSERT_TRUE(RunUntil([&] { return IsParked(); }));
  Start({PlaceOf(0), PlaceOf(1, "GPU")});
  EXPECT_EQ(supervisor_.pid(0), first);
  EXPECT_NE(supervisor_.pid(1), second);
  EXPECT_NE(::kill(third, 0), 0);
}

TEST_F(RegroupTest, WhatCannotBeWrittenInALineIsStartedAnew) {
  Start({PlaceOf(0)});
  const pid_t before = supervisor_.pid(0);
  Stop();
  EXPECT_TRUE(regroup_.Answered(0, 5));
  ASSERT_TRUE(RunUntil([&] { return IsParked(); }));
  Regroup::Place place = PlaceOf(0);
  place.environment["TF_CONFIG"] = std::string(100'000, 'x');
  Start({place});
  EXPECT_NE(supervisor_.pid(0), before);
}

TEST_F(RegroupTest, NobodyGoesOnWithAManifestThatChanged) {
  Start({PlaceOf(0)});
  const pid_t before = supervisor_.pid(0);
  Stop();
  EXPECT_TRUE(regroup_.Answered(0, 5));
  ASSERT_TRUE(RunUntil([&] { return IsParked(); }));
  regroup_.NobodyGoesOn();
  Start({PlaceOf(0)});
  EXPECT_NE(supervisor_.pid(0), before);
}

TEST_F(RegroupTest, WhenItGivesUpNobodyIsKilledForItsSilence) {
  Start({PlaceOf(0)});
  regroup_.Ask();
  regroup_.GiveUp();
  bool over = false;
  loop_->After(milliseconds(250), [&] { over = true; });
  ASSERT_TRUE(RunUntil([&] { return over; }));
  EXPECT_NE(supervisor_.pid(0), 0);
  EXPECT_THAT(said_, IsEmpty());
}

}  // namespace
}  // namespace lockstep::job
