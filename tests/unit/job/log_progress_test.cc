#include "launcher/job/log_progress.h"

#include <gtest/gtest.h>

namespace lockstep::job {
namespace {

using process::OutputStream;

class LogProgressTest : public ::testing::Test {
 protected:
  std::optional<contract::StepEvent> Read(std::string_view bytes, double at = 0,
                                          OutputStream stream = OutputStream::kStdout) {
    return progress_.Read(1, stream, bytes,
                          LogProgress::Time(std::chrono::milliseconds(static_cast<int64_t>(at * 1000) + 1)));
  }

  LogProgress progress_{{{1, *spec::LogPattern::Compile(
                                 "(?:epoch (?<epoch>\\d+) )?step (?<step>\\d+)(?: seen (?<samples>\\d+))?"
                                 "(?: loss (?<loss>\\S+))?")}}};
};

TEST_F(LogProgressTest, CountsFromOneLineToTheNext) {
  auto event = Read("hello\nstep 100 seen 3200 loss 0.5\n", 1);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->step, 100);
  EXPECT_EQ(event->steps, 1) << "it may have been resumed";
  EXPECT_EQ(event->samples, 0);
  EXPECT_EQ(event->seconds, 0);
  EXPECT_EQ(event->loss, 0.5);
  event = Read("step 110 seen 3520 loss 0.25\n", 3);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->steps, 10);
  EXPECT_EQ(event->samples, 320);
  EXPECT_EQ(event->seconds, 2);
}

TEST_F(LogProgressTest, TakesSeveralLinesAtOnceForOneEvent) {
  Read("step 1\n", 1);
  const auto event = Read("step 2 loss 3\nstep 3 loss 2\nstep 4 loss 1\n", 2);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->step, 4);
  EXPECT_EQ(event->steps, 3);
  EXPECT_EQ(event->loss, 1);
}

TEST_F(LogProgressTest, PutsLinesTogetherAndWaitsForTheirEnd) {
  EXPECT_FALSE(Read("st"));
  EXPECT_FALSE(Read("ep 1"));
  EXPECT_EQ(Read("step 7\n", 0, OutputStream::kStderr)->step, 7) << "the streams are apart";
  const auto event = Read("2\rstep 1", 1);
  ASSERT_TRUE(event) << "a progress bar's end of line";
  EXPECT_EQ(event->step, 12);
}

TEST_F(LogProgressTest, GoesOnWhereACountStartsOver) {
  Read("epoch 1 step 10 seen 640\n");
  EXPECT_EQ(Read("epoch 1 step 90 seen 5760\n", 1)->step, 90);
  const auto event = Read("epoch 2 step 10 seen 640\n", 2);
  EXPECT_EQ(event->step, 100);
  EXPECT_EQ(event->steps, 10);
  EXPECT_EQ(event->samples, 640);
  EXPECT_EQ(event->epoch, 1) << "events count from 0";
  EXPECT_EQ(Read("epoch 2 step 20 seen 1280\n", 3)->step, 110);
}

TEST_F(LogProgressTest, LeavesEpochsThatCountFromZero) {
  EXPECT_EQ(Read("epoch 0 step 1\n")->epoch, 0);
  EXPECT_EQ(Read("epoch 1 step 2\n")->epoch, 1);
}

TEST_F(LogProgressTest, TakesNoStepForWhatIsNoStep) {
  EXPECT_FALSE(Read("step 0 loss 2.3\n", 1)) << "nothing is done yet";
  EXPECT_EQ(Read("step 5\n", 3)->seconds, 2) << "but the clock runs";
  EXPECT_FALSE(Read("step 5\n", 4)) << "said twice";
  EXPECT_FALSE(progress_.Read(0, OutputStream::kStdout, "step 6\n", {})) << "a rank without a pattern";
}

TEST_F(LogProgressTest, KeepsTheEndOfALineThatIsTooLong) {
  EXPECT_EQ(Read(std::string(100000, 'x') + "step 3\n")->step, 3);
}

TEST_F(LogProgressTest, DoesNotOverflow) {
  for (int i = 0; i < 3000; ++i) {
    const auto event = Read("step 9007199254740992\nstep 1\n");
    ASSERT_TRUE(event);
    ASSERT_GT(event->step, 0);
  }
}

}  // namespace
}  // namespace lockstep::job
