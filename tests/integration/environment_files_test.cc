#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/launcher_process.h"

// spec.program.envFiles.
namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSecret[] = "hunter2";

class EnvironmentFilesJobTest : public ::testing::Test {
 protected:
  nlohmann::json Spec(const std::string& script) const {
    nlohmann::json spec = ShellSpec(2, script);
    spec["program"]["envFiles"] = {file_};
    return spec;
  }

  const TemporaryFolder folder_;
  const std::string file_ = folder_.Write("job.env", std::string("PIN=") + kSecret + "\n");
};

TEST_F(EnvironmentFilesJobTest, ReachTheRanksAndPrepareAndNothingElse) {
  nlohmann::json spec = Spec("test $PIN = hunter2 && kill -9 $$");
  spec["program"]["prepare"] = {"sh", "-c", "test $PIN = hunter2"};
  spec["runPolicy"] = {{"maxRestarts", 1}};
  JobRun run(
      spec, {.arguments = {"--verbose"}, .environment = {{"LOCKSTEP_DEVICE_LEDGER", folder_.File("locks")}}});
  EXPECT_EQ(run.Wait(), 137) << run.launcher().err();
  // The script has it too, and may be told.
  std::string all = run.launcher().err() + run.launcher().out();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run.File(""))) {
    if (entry.is_regular_file()) all += ReadText(entry.path());
  }
  EXPECT_THAT(all, HasSubstr("\"envFiles\"")) << "the kept manifest is among them";
  const std::string script = "test $PIN = hunter2";
  for (size_t at = 0; (at = all.find(script, at)) != std::string::npos;) all.erase(at, script.size());
  EXPECT_THAT(all, Not(HasSubstr(kSecret)));
}

TEST_F(EnvironmentFilesJobTest, AreReadAgainWhenTheProcessesRestart) {
  const std::string renew =
      "echo got $PIN; test $LOCKSTEP_GENERATION = 1 || { test $RANK = 0 && echo PIN=new > " + file_ +
      "; exit 1; }";
  nlohmann::json spec = Spec(renew);
  spec["processesPerReplica"] = 1;
  JobRun run(spec);
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.Log(0), HasSubstr("got hunter2\n"));
  EXPECT_THAT(run.Log(0), HasSubstr("got new\n"));
}

TEST_F(EnvironmentFilesJobTest, EndTheJobBeforeAnythingRunsWhereALineIsWrong) {
  folder_.Write("job.env", "A=1\nhunter2\n");
  JobRun run(Spec("echo started"));
  EXPECT_EQ(run.Wait(), 2);
  EXPECT_THAT(run.launcher().err(), HasSubstr(file_ + ":2: there is no ="));
  EXPECT_THAT(run.launcher().err() + run.launcher().out(), Not(HasSubstr(kSecret)));
  EXPECT_THAT(run.launcher().out(), Not(HasSubstr("started")));
}

TEST_F(EnvironmentFilesJobTest, AreShownByADryRunByTheirNames) {
  for (const char* format : {"yaml", "json"}) {
    JobRun run(Spec("true"), {.arguments = {"--dry-run", "-o", format}});
    EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
    EXPECT_THAT(run.launcher().out(), HasSubstr("\"(from " + file_ + ")\""));
    EXPECT_THAT(run.launcher().out(), Not(HasSubstr(kSecret)));
  }
  folder_.Write("job.env", "hunter2\n");
  JobRun run(Spec("true"), {.arguments = {"--dry-run"}});
  EXPECT_EQ(run.Wait(), 2);
  EXPECT_THAT(run.launcher().err(), HasSubstr(file_ + ":1: "));
}

}  // namespace
}  // namespace lockstep::testing
