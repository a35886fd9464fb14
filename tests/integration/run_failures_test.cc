#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/support/launcher_process.h"

// `lockstep run` with programs that fail.
namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

nlohmann::json WithPolicy(nlohmann::json spec, nlohmann::json policy) {
  spec["runPolicy"] = std::move(policy);
  return spec;
}

TEST(RunFailuresTest, EndsWithTheCodeOfTheRankThatFailedFirst) {
  JobRun run(WithPolicy(ShellSpec(4, "test $RANK = 2 && { echo the last words; exit 7; }; exec sleep 1000"),
                        {{"maxRestarts", 0}}));
  EXPECT_EQ(run.Wait(), 7);
  EXPECT_THAT(run.launcher().err(), HasSubstr("rank 2"));
  EXPECT_THAT(run.launcher().err(), HasSubstr("exit code 7"));
  EXPECT_THAT(run.launcher().err(), HasSubstr("the last words"));
  EXPECT_THAT(run.launcher().err(), HasSubstr("rank-2.log"));
}

TEST(RunFailuresTest, SaysASignalInWords) {
  JobRun run(
      WithPolicy(ShellSpec(2, "test $RANK = 1 && kill -SEGV $$; exec sleep 1000"), {{"maxRestarts", 0}}));
  EXPECT_EQ(run.Wait(), 128 + SIGSEGV);
  EXPECT_THAT(run.launcher().err(), HasSubstr("SIGSEGV"));
}

TEST(RunFailuresTest, RestartsAllRanksTogether) {
  // The rank that fails waits until the others have written their line.
  const TemporaryFolder there;
  JobRun run(
      ShellSpec(3, "echo generation $LOCKSTEP_GENERATION; test $LOCKSTEP_GENERATION = 1 && exit 0; touch '" +
                       there.path().string() + "'/$RANK; test $RANK = 1 || exec sleep 1000; cd '" +
                       there.path().string() + "'; until test -e 0 -a -e 2; do sleep 0.01; done; exit 9"));
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(run.Log(rank), HasSubstr("generation 0\n"));
    EXPECT_THAT(run.Log(rank), HasSubstr("generation 1\n"));
  }
}

TEST(RunFailuresTest, AKilledRankIsStartedAgainWithTheOthers) {
  JobRun run(ShellSpec(3, "exec sleep 1000"));
  const auto before = run.Pids(0);
  ASSERT_EQ(before.size(), 3u) << run.launcher().err();
  ::kill(before[1], SIGKILL);
  const auto after = run.Pids(1);
  ASSERT_EQ(after.size(), 3u) << run.launcher().err();
  for (const pid_t pid : before) EXPECT_FALSE(IsAlive(pid));
  EXPECT_THAT(run.Get("/metrics"), HasSubstr("lockstep_restarts_total"));
  EXPECT_EQ(run.Status()["restarts"], 1);
  EXPECT_EQ(run.Status()["lastFailure"]["process"], 1);
  run.launcher().Signal(SIGTERM);
  run.Wait();
}

TEST(RunFailuresTest, GivesUpAfterMaxRestarts) {
  JobRun run(WithPolicy(ShellSpec(2, "exit 5"), {{"maxRestarts", 1}}));
  EXPECT_EQ(run.Wait(), 5);
  EXPECT_THAT(run.launcher().err(), HasSubstr("restarting all ranks (1 of 1)"));
  EXPECT_THAT(run.Log(0), HasSubstr("generation 1"));
  EXPECT_THAT(run.Log(0), Not(HasSubstr("generation 2")));
}

TEST(RunFailuresTest, DoesNotRestartWhatTheRulesCallPermanent) {
  JobRun run(WithPolicy(ShellSpec(2, "exit 42"), {{"exitCodes", {{{"codes", {42}}, {"action", "Fail"}}}}}));
  EXPECT_EQ(run.Wait(), 42);
  EXPECT_THAT(run.Log(0), Not(HasSubstr("generation 1")));
}

TEST(RunFailuresTest, LetsTheOthersGoOnWhenARuleIgnoresAnExit) {
  JobRun run(WithPolicy(ShellSpec(2, "test $RANK = 1 && exit 42; sleep 0.3; echo went on"),
                        {{"exitCodes", {{{"codes", {42}}, {"action", "Ignore"}}}}}));
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.Log(0), HasSubstr("went on"));
}

TEST(RunFailuresTest, AProgramThatIsNotThereIs127AndNotTriedAgain) {
  JobRun run(ProgramSpec(2, {"no-such-program-anywhere"}));
  EXPECT_EQ(run.Wait(), 127);
  EXPECT_THAT(run.launcher().err(), HasSubstr("no-such-program-anywhere"));
}

TEST(RunFailuresTest, AProgramThatCannotBeExecutedIs126) {
  JobRun run(ProgramSpec(1, {"/etc/passwd"}));
  EXPECT_EQ(run.Wait(), 126);
  EXPECT_THAT(run.launcher().err(), HasSubstr("/etc/passwd"));
}

TEST(RunFailuresTest, ARankThatTakesNoStepsIsFoundAndNamed) {
  // Rank 1 stops after its first step.
  JobRun run(WithPolicy(
      ShellSpec(
          2,
          "i=0; while :; do i=$((i+1)); echo '{\"event\":\"step\",\"step\":'$i'}' >&$LOCKSTEP_EVENTS_FD;"
          " test $RANK = 1 && kill -STOP $$; test $i = 2 && exec sleep 1000; done"),
      {{"maxRestarts", 0}, {"progressDeadlineSeconds", 1}}));
  EXPECT_EQ(run.Wait(), 128 + SIGKILL);
  EXPECT_THAT(run.launcher().err(), HasSubstr("the job hangs"));
  EXPECT_THAT(run.launcher().err(), HasSubstr("rank 1"));
}

// A program that tells of no steps.
TEST(RunFailuresTest, AJobThatWritesNothingAnyMoreIsRestarted) {
  JobRun run(WithPolicy(ShellSpec(2, "echo here; test $LOCKSTEP_GENERATION = 1 || exec sleep 1000"),
                        {{"maxRestarts", 1}, {"progressDeadlineSeconds", 1}}));
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(), HasSubstr("the job hangs: no output for 1.0 s"));
}

}  // namespace
}  // namespace lockstep::testing
