#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <array>

#include "common/unique_fd.h"
#include "tests/support/launcher_process.h"

// What the ranks of `lockstep run` read.
namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A pipe that holds `text` and then ends.
UniqueFd PipeWith(const std::string& text) {
  std::array<int, 2> ends;
  EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd write(ends[1]);
  EXPECT_EQ(::write(write.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return UniqueFd(ends[0]);
}

TEST(StandardInputTest, IsRankZerosAndNobodyElses) {
  const UniqueFd input = PipeWith("one\ntwo\n");
  JobRun run(ShellSpec(3, "echo got [$(cat)]"), {.input = input.get()});
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.Log(0), HasSubstr("got [one two]\n"));
  for (int rank = 1; rank < 3; ++rank) EXPECT_THAT(run.Log(rank), HasSubstr("got []\n"));
}

TEST(StandardInputTest, OfAFileIsReadFromTheSamePlaceAgainAfterARestart) {
  const TemporaryFolder folder;
  const UniqueFd input(::open(folder.Write("data", "header\none\ntwo\n").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::lseek(input.get(), 7, SEEK_SET), 7);  // as a shell's `read header` leaves it
  JobRun run(ShellSpec(2, "echo got [$(cat)]; test $LOCKSTEP_GENERATION = 1"), {.input = input.get()});
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.Log(0), HasSubstr("got [one two]\n"));
  EXPECT_THAT(run.Log(0).substr(run.Log(0).find("generation 1")), HasSubstr("got [one two]\n"));
  EXPECT_THAT(run.launcher().err(), Not(HasSubstr("standard input")));
}

TEST(StandardInputTest, OfAPipeGoesOnAfterARestartWithWhatIsLeft) {
  const UniqueFd input = PipeWith("one\ntwo\n");
  JobRun run(ShellSpec(1, "read line; echo got [$line]; test $LOCKSTEP_GENERATION = 1"),
             {.input = input.get()});
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.Log(0), HasSubstr("got [one]\n"));
  EXPECT_THAT(run.Log(0), HasSubstr("got [two]\n"));
  EXPECT_THAT(run.launcher().err(), HasSubstr("rank 0 gets what is left of standard input"));
}

TEST(StandardInputTest, IsNotATerminalWhichWouldStopARankThatReads) {
  int master = -1, terminal = -1;
  ASSERT_EQ(::openpty(&master, &terminal, nullptr, nullptr, nullptr), 0);
  const UniqueFd ends[] = {UniqueFd(master), UniqueFd(terminal)};
  JobRun run(ShellSpec(1, "readlink /proc/self/fd/0; cat; echo done"), {.input = terminal});
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.Log(0), HasSubstr("/dev/null\ndone\n"));
}

TEST(StandardInputTest, IsNotGivenWhereTheManifestWasReadFromIt) {
  const TemporaryFolder folder;
  const nlohmann::json manifest = {{"apiVersion", "lockstep.dev/v1alpha1"},
                                   {"kind", "TrainingJob"},
                                   {"metadata", {{"name", "test"}}},
                                   {"spec", ShellSpec(1, "readlink /proc/self/fd/0")}};
  const UniqueFd input(::open(folder.Write("job.json", manifest.dump()).c_str(), O_RDONLY | O_CLOEXEC));
  LauncherProcess launcher(
      {.arguments = {"run", "-", "--run-dir", folder.File("run")}, .input = input.get()});
  EXPECT_EQ(launcher.Wait(), 0) << launcher.err();
  EXPECT_THAT(launcher.out(), HasSubstr("/dev/null\n"));
}

}  // namespace
}  // namespace lockstep::testing
