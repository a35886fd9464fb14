#include "launcher/process/run_program.h"

#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <thread>

#include "tests/unit/process/test_util.h"

namespace lockstep::process {
namespace {

Launch Shell(const std::string& script) { return MakeLaunch(0, {"/bin/sh", "-c", script}); }

TEST(RunProgramTest, ReturnsAllThatWasWrittenAndHowItEnded) {
  const auto output =
      RunProgram(Shell("head -c 300000 /dev/zero | tr '\\0' x; echo e >&2; exit 7"), kDeadline);
  ASSERT_TRUE(output.ok()) << output.status().ToString();
  EXPECT_EQ(output->out, std::string(300'000, 'x'));
  EXPECT_EQ(output->err, "e\n");
  EXPECT_EQ(output->status.exit_code, 7);
}

TEST(RunProgramTest, KillsWhatTheProgramLeavesBehind) {
  const auto output = RunProgram(Shell("sleep 1000 & echo $!"), kDeadline);
  ASSERT_TRUE(output.ok()) << output.status().ToString();
  const pid_t left = std::atoi(output->out.c_str());
  ASSERT_GT(left, 0) << output->out;
  // It may have become a child of ours.
  const auto gone = [&] { return ::waitpid(left, nullptr, WNOHANG) == left || ::kill(left, 0) != 0; };
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (!gone() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_NE(::kill(left, 0), 0);
}

TEST(LastErrorTest, IsWithoutTheTimeAndTheNameOfTheProgram) {
  EXPECT_EQ(LastError({.err = "12:00:00 x: error: first\n12:00:01 x: error: no room\n"}), "no room");
  EXPECT_EQ(LastError({.err = " no such thing \n"}), "no such thing");
  EXPECT_EQ(LastError({.err = "x: error: \n"}), "");
  EXPECT_EQ(LastError({}), "");
}

TEST(RunProgramTest, SaysWhyThereIsNone) {
  EXPECT_EQ(RunProgram(MakeLaunch(0, {"/no/such/program"}), kDeadline).status().code(),
            StatusCode::kNotFound);
  const Status late = RunProgram(Shell("exec sleep 1000"), std::chrono::seconds(1)).status();
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late.message(), "/bin/sh has not ended within 1 s");
  EXPECT_EQ(RunProgram(Shell("exec cat /dev/zero"), kDeadline).status().code(),
            StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace lockstep::process
