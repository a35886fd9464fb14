#include "trainer/control_pipe.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <optional>
#include <string>

namespace lockstep::testing {
namespace {

using trainer::ControlPipe;

constexpr std::chrono::seconds kInTime{60};  // only a failure waits for it
constexpr const char* kRegroup = "{\"control\":\"regroup\"}\n";

std::string GenerationLine(const std::string& rank) {
  return contract::EncodeControl(contract::GenerationControl{.environment = {{"RANK", rank}}}).value();
}

class ControlPipeTest : public ::testing::Test {
 protected:
  ControlPipeTest() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    launcher_.reset(ends[1]);
    pipe_.emplace(UniqueFd(ends[0]));
  }

  void Say(const std::string& text) {
    ASSERT_EQ(::write(launcher_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::string NextRank() {
    const auto next = pipe_->AwaitGeneration(kInTime);
    return next ? next->at("RANK") : "none";
  }

  UniqueFd launcher_;
  std::optional<ControlPipe> pipe_;
};

TEST_F(ControlPipeTest, WithoutOneThereIsNobodyToWaitFor) {
  ControlPipe none{UniqueFd()};
  EXPECT_FALSE(none.open());
  EXPECT_FALSE(none.AwaitGeneration(kInTime));
}

TEST_F(ControlPipeTest, WhoHandlesItIsCalledForEachTime) {
  std::promise<void> first, second;
  int calls = 0;
  pipe_->Handle([&] { (++calls == 1 ? first : second).set_value(); });
  Say(kRegroup);
  ASSERT_EQ(first.get_future().wait_for(kInTime), std::future_status::ready);
  Say(kRegroup);
  ASSERT_EQ(second.get_future().wait_for(kInTime), std::future_status::ready);
  pipe_->Handle(nullptr);
  Say(kRegroup + GenerationLine("3"));
  EXPECT_EQ(NextRank(), "3");
  EXPECT_EQ(calls, 2);
}

TEST_F(ControlPipeTest, WhatNobodyHandledIsRememberedOnce) {
  Say(GenerationLine("0") + kRegroup + GenerationLine("1").substr(0, 9));
  EXPECT_EQ(NextRank(), "0");
  std::promise<void> told;
  pipe_->Handle([&] { told.set_value(); });  // at once, or as the line is read
  ASSERT_EQ(told.get_future().wait_for(kInTime), std::future_status::ready);
  bool again = false;
  pipe_->Handle([&] { again = true; });
  EXPECT_FALSE(again);
}

TEST_F(ControlPipeTest, ANewGenerationHasNotBeenToldToRegroup) {
  Say(kRegroup + GenerationLine("5"));
  EXPECT_EQ(NextRank(), "5");
  bool told = false;
  pipe_->Handle([&] { told = true; });
  EXPECT_FALSE(told);
}

TEST_F(ControlPipeTest, LinesComeInAnyPieces) {
  const std::string line = GenerationLine("12");
  for (const char c : line) Say(std::string(1, c));
  EXPECT_EQ(NextRank(), "12");
}

TEST_F(ControlPipeTest, RubbishIsPassedOver) {
  Say("\n{}\nnot JSON\n{\"control\":\"dance\"}\n{\"control\":\"generation\"}\n{\"control\":7}\n\xff\xfe\n");
  Say(GenerationLine("7"));
  EXPECT_EQ(NextRank(), "7");
  EXPECT_TRUE(pipe_->open());
}

TEST_F(ControlPipeTest, ALineWithoutEndEndsIt) {
  const std::string piece(8192, 'x');
  for (size_t sent = 0; sent <= contract::kMaxControlBytes; sent += piece.size()) Say(piece);
  EXPECT_FALSE(pipe_->AwaitGeneration(kInTime));
  EXPECT_FALSE(pipe_->open());
}

TEST_F(ControlPipeTest, TheLastWordOfALauncherThatIsGoneIsHeard) {
  Say(GenerationLine("2"));
  launcher_.reset();
  EXPECT_EQ(NextRank(), "2");
  EXPECT_FALSE(pipe_->AwaitGeneration(kInTime));
  EXPECT_FALSE(pipe_->open());
}

TEST_F(ControlPipeTest, WaitsNoLongerThanItIsTold) {
  EXPECT_FALSE(pipe_->AwaitGeneration(std::chrono::milliseconds(20)));
  EXPECT_TRUE(pipe_->open());
}

}  // namespace
}  // namespace lockstep::testing
