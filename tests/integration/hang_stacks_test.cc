#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>

#include "tests/support/launcher_process.h"

// What is found out of a rank before it is killed for a hang, and of one that crashed.
namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// Rank 1 is behind by a step, and sleeps.
nlohmann::json HangingSpec() {
  nlohmann::json spec =
      ShellSpec(2,
                "step() { echo '{\"event\":\"step\",\"step\":'$1'}' >&$LOCKSTEP_EVENTS_FD; }; "
                "step 1; test $RANK = 1 || step 2; exec sleep 1000");
  spec["runPolicy"] = {{"maxRestarts", 0}, {"progressDeadlineSeconds", 1}};
  return spec;
}

class HangStacksTest : public ::testing::Test {
 protected:
  // A PATH with these programs alone.
  std::string PathOf(const std::vector<std::string>& programs) const {
    for (const std::string& program : programs) {
      for (const char* folder : {"/usr/bin/", "/bin/"}) {
        std::error_code error;
        if (std::filesystem::exists(folder + program)) {
          std::filesystem::create_symlink(folder + program, folder_.path() / program, error);
          break;
        }
      }
    }
    return folder_.path().string();
  }
  const TemporaryFolder folder_;
};

TEST_F(HangStacksTest, AreGdbsInTheFailureReportAndInAFile) {
  if (!std::filesystem::exists("/usr/bin/gdb")) GTEST_SKIP() << "needs gdb";
  JobRun run(HangingSpec(), {.environment = {{"PATH", PathOf({"sh", "sleep", "gdb"})}}});
  EXPECT_EQ(run.Wait(), 128 + SIGKILL) << run.launcher().err();
  const std::string kept = ReadText(run.File("stack-rank-1.txt"));
  if (kept.find("Operation not permitted") != std::string::npos) GTEST_SKIP() << "gdb may not attach here";
  EXPECT_THAT(kept, HasSubstr("rank 1 is at step 1"));
  EXPECT_THAT(kept, HasSubstr("\ngdb:\n"));
  EXPECT_THAT(kept, HasSubstr("nanosleep"));
  const std::string err = run.launcher().err();
  EXPECT_THAT(err, HasSubstr("rank 1 (worker"));
  EXPECT_THAT(err, HasSubstr("  where it stood:\n    | Thread 1 "));
  EXPECT_THAT(err, HasSubstr("nanosleep"));
  EXPECT_THAT(err, HasSubstr("  all stacks of it: " + run.File("stack-rank-1.txt") + "\n"));
}

TEST_F(HangStacksTest, AreWhatTheKernelSaysWhereNoToolIsThere) {
  JobRun run(HangingSpec(), {.environment = {{"PATH", PathOf({"sh", "sleep"})}}});
  EXPECT_EQ(run.Wait(), 128 + SIGKILL) << run.launcher().err();
  const std::string err = run.launcher().err();
  const size_t stood = err.find("  where it stood:\n");
  ASSERT_NE(stood, std::string::npos) << err;
  EXPECT_THAT(err.substr(stood), HasSubstr("(sleep): sleeps"));
  const std::string advice = "install gdb for its stack";
  EXPECT_THAT(err.substr(stood), HasSubstr("    | " + advice + "\n"));
  EXPECT_EQ(err.find(advice), err.rfind(advice)) << "said once";
  EXPECT_THAT(ReadText(run.File("stack-rank-1.txt")), HasSubstr("(sleep): sleeps"));
  EXPECT_EQ(ReadText(run.File("stack-rank-0.txt")), "") << "it is not to blame";
}

TEST_F(HangStacksTest, AreNotNeededForACrashWhichLeavesACoreDump) {
  std::string pattern = ReadText("/proc/sys/kernel/core_pattern");
  rlimit limit{};
  ::getrlimit(RLIMIT_CORE, &limit);
  if (pattern != "core\n" || limit.rlim_max == 0) GTEST_SKIP() << "no core dumps here";
  nlohmann::json spec = ShellSpec(1, "ulimit -c unlimited; kill -SEGV $$");
  spec["program"]["workingDir"] = folder_.path().string();
  spec["runPolicy"] = {{"maxRestarts", 0}};
  JobRun run(spec);
  EXPECT_EQ(run.Wait(), 128 + SIGSEGV) << run.launcher().err();
  if (std::filesystem::is_empty(folder_.path())) GTEST_SKIP() << "the kernel left none";
  EXPECT_THAT(run.launcher().err(), HasSubstr("  its core dump: " + folder_.File("core")));
}

}  // namespace
}  // namespace lockstep::testing
