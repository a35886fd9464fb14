#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/launcher_process.h"

// `lockstep run` with programs that do what they should.
namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(RunTest, SucceedsWhenAllRanksDo) {
  JobRun run(ShellSpec(4, "echo hello from $RANK"));
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  for (int rank = 0; rank < 4; ++rank) {
    const std::string hello = "hello from " + std::to_string(rank);
    EXPECT_THAT(run.launcher().out(), HasSubstr("[rank " + std::to_string(rank) + "] " + hello + "\n"));
    EXPECT_THAT(run.Log(rank), HasSubstr(hello));
  }
}

TEST(RunTest, TellsEachRankWhereItStands) {
  JobRun run(ShellSpec(
      3,
      "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE "
      "$LOCKSTEP_JOB $LOCKSTEP_GENERATION $LOCKSTEP_ROLE gpus=[$CUDA_VISIBLE_DEVICES] $CUDA_DEVICE_ORDER"));
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  for (int rank = 0; rank < 3; ++rank) {
    const std::string at = std::to_string(rank) + "/3";
    EXPECT_THAT(run.Log(rank), HasSubstr(at + " " + at + " 0/1 test 0 worker gpus=[] PCI_BUS_ID\n"));
  }
}

TEST(RunTest, FillsInVariablesOfTheCommandButNoSecrets) {
  nlohmann::json spec =
      ProgramSpec(2, {"echo", "rank=$(RANK) of $(WORLD_SIZE), $(MODE), $(HOME_SECRET), $$(RANK)", "$(NONE)"});
  spec["program"]["env"] = {{{"name", "MODE"}, {"value", "fast"}}};
  JobRun run(spec, {.environment = {{"HOME_SECRET", "hidden"}}});
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  for (const std::string rank : {"0", "1"}) {
    EXPECT_THAT(run.launcher().out(), HasSubstr("[rank " + rank + "] rank=" + rank +
                                                " of 2, fast, $(HOME_SECRET), $(RANK) $(NONE)\n"));
  }
}

TEST(RunTest, ScrubsWhatAnotherLauncherLeft) {
  JobRun run(
      ShellSpec(1, "echo [$OMPI_COMM_WORLD_RANK$SLURM_PROCID$TORCHELASTIC_RUN_ID$TF_CONFIG] $RANK $KEPT"),
      {.environment = {{"OMPI_COMM_WORLD_RANK", "7"},
                       {"SLURM_PROCID", "7"},
                       {"TORCHELASTIC_RUN_ID", "7"},
                       {"TF_CONFIG", "{}"},
                       {"RANK", "7"},
                       {"KEPT", "kept"}}});
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.Log(0), HasSubstr("[] 0 kept\n"));
}

TEST(RunTest, KeepsAllThatARankWrites) {
  JobRun run(ShellSpec(2, "head -c 3000000 /dev/zero | tr '\\0' x; echo; printf 'no newline at the end'"));
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  for (int rank = 0; rank < 2; ++rank) {
    const std::string log = run.Log(rank);
    EXPECT_EQ(std::count(log.begin(), log.end(), 'x'), 3000000);
    EXPECT_THAT(log.substr(log.size() - 22), HasSubstr("no newline at the end"));
  }
}

TEST(RunTest, WritesEveryLineAsJsonWhereThatIsAskedFor) {
  nlohmann::json spec = ShellSpec(2, "echo out; echo err >&2; exit $((RANK * 7))");
  spec["runPolicy"] = {{"maxRestarts", 0}};
  JobRun run(spec, {.arguments = {"--log-format", "json", "--verbose"}});
  EXPECT_EQ(run.Wait(), 7) << run.launcher().err();
  std::map<std::string, int> seen;
  std::string messages;
  for (const std::string& text : {run.launcher().out(), run.launcher().err()}) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      ASSERT_TRUE(json.is_object()) << line;
      if (json["source"] == "rank") {
        ++seen[json["message"].get<std::string>() + " of " + json["rank"].dump() + " " +
               json["stream"].get<std::string>()];
      } else {
        EXPECT_EQ(json["source"], "lockstep");
        messages += json["level"].get<std::string>() + ": " + json["message"].get<std::string>() + "\n";
      }
    }
  }
  EXPECT_GE(seen["out of 1 stdout"], 1);
  EXPECT_GE(seen["err of 1 stderr"], 1);
  EXPECT_THAT(messages, HasSubstr("debug: rank 1: pid "));
  EXPECT_THAT(messages, HasSubstr("debug: rank 1 ended after "));
  EXPECT_THAT(messages, HasSubstr("error: rank 1 (worker"));
  EXPECT_THAT(messages, HasSubstr("error: test: ended with exit code 7"));
}

TEST(RunTest, AnswersOverHttpWhileItRuns) {
  JobRun run(ShellSpec(2, "exec sleep 1000"));
  ASSERT_EQ(run.Pids().size(), 2u) << run.launcher().err();
  EXPECT_EQ(run.Get("/healthz").substr(0, 2), "ok");
  EXPECT_THAT(run.Get("/metrics"), HasSubstr("lockstep_job_info{"));
  EXPECT_THAT(run.Get("/metrics"), HasSubstr("process_resident_memory_bytes"));
  EXPECT_THAT(run.Get("/"), HasSubstr("<html"));
  EXPECT_EQ(run.Status()["phase"], "Running");
  run.launcher().Signal(SIGTERM);
  EXPECT_EQ(run.Wait(), 128 + SIGTERM) << run.launcher().err();
}

TEST(RunTest, KeepsTheTokenSecret) {
  JobRun run(
      ShellSpec(1, "stat -c '%a' $LOCKSTEP_TOKEN_FILE; echo file=$LOCKSTEP_TOKEN_FILE; exec sleep 1000"));
  const auto pids = run.Pids();
  ASSERT_EQ(pids.size(), 1u) << run.launcher().err();
  ASSERT_TRUE(WaitUntil([&] { return run.Log(0).find("file=") != std::string::npos; }));
  EXPECT_THAT(run.Log(0), HasSubstr("600\n"));
  const std::string token = ReadText(run.File("token")).substr(0, 64);
  ASSERT_EQ(token.size(), 64u);
  for (const pid_t pid : {pids[0], run.launcher().pid()}) {
    for (const char* what : {"/cmdline", "/environ"}) {
      EXPECT_THAT(ReadText("/proc/" + std::to_string(pid) + what), Not(HasSubstr(token)));
    }
  }
  EXPECT_THAT(run.Get("/status") + run.Get("/metrics") + run.launcher().err(), Not(HasSubstr(token)));
  run.launcher().Signal(SIGTERM);
  run.Wait();
  EXPECT_EQ(ReadText(run.File("token")), "");
}

TEST(RunTest, GivesTerminatedRanksTheirGrace) {
  nlohmann::json spec =
      ShellSpec(2, "trap 'echo saved; exit 0' TERM; echo trapped; while :; do sleep 0.05; done");
  JobRun run(spec);
  ASSERT_TRUE(WaitUntil([&] {
    return run.Log(0).find("trapped") != std::string::npos && run.Log(1).find("trapped") != std::string::npos;
  })) << run.launcher().err();
  run.launcher().Signal(SIGTERM);
  EXPECT_EQ(run.Wait(), 75) << run.launcher().err();
  EXPECT_THAT(run.Log(0), HasSubstr("saved"));
  EXPECT_THAT(run.Log(1), HasSubstr("saved"));
}

TEST(RunTest, ASecondInterruptStopsAtOnce) {
  JobRun run(ShellSpec(2, "trap '' TERM INT; echo deaf; while :; do sleep 0.05; done"));
  ASSERT_TRUE(WaitUntil([&] {
    return run.Log(0).find("deaf") != std::string::npos && run.Log(1).find("deaf") != std::string::npos;
  })) << run.launcher().err();
  run.launcher().Signal(SIGINT);
  ASSERT_TRUE(WaitUntil([&] { return run.launcher().err().find("once more") != std::string::npos; }));
  const auto second = std::chrono::steady_clock::now();
  run.launcher().Signal(SIGINT);
  EXPECT_EQ(run.Wait(), 128 + SIGKILL) << run.launcher().err();
  // The grace period is 30 s: it was not waited for.
  EXPECT_LT(std::chrono::steady_clock::now() - second, std::chrono::seconds(20));
}

TEST(RunTest, TakesTheProgramsEventsIntoItsStatus) {
  JobRun run(
      ShellSpec(1,
                "echo '{\"event\":\"step\",\"step\":3,\"total_steps\":10,\"samples\":32,\"loss\":0.5}' "
                ">&$LOCKSTEP_EVENTS_FD;"
                " echo nonsense >&$LOCKSTEP_EVENTS_FD; exec sleep 1000"));
  ASSERT_TRUE(WaitUntil([&] {
    const auto status = run.Status();
    return status.is_object() && status.contains("progress") && status["progress"].value("step", 0) == 3;
  })) << run.Get("/status");
  EXPECT_EQ(run.Status()["progress"]["totalSteps"], 10);
  EXPECT_THAT(run.Get("/metrics"), HasSubstr("lockstep_loss"));
  run.launcher().Signal(SIGTERM);
  run.Wait();
}

// As a program that nobody changed prints it.
TEST(RunTest, ReadsTheProgressFromWhatAProgramPrints) {
  nlohmann::json spec = ShellSpec(2,
                                  "test $RANK = 0 && printf 'Epoch 1 step 3/10 loss=0.75\\nEpoch 1 step 4/10 "
                                  "loss=0.5\\n'; exec sleep 1000");
  spec["program"]["progress"] = {
      {"logPattern", R"(Epoch (?<epoch>\d+) step (?<step>\d+)/(?<total>\d+) loss=(?<loss>\S+))"}};
  JobRun run(spec);
  ASSERT_TRUE(WaitUntil([&] {
    const auto status = run.Status();
    return status.is_object() && status.contains("progress") && status["progress"].value("step", 0) == 4;
  })) << run.Get("/status");
  EXPECT_EQ(run.Status()["progress"]["totalSteps"], 10);
  EXPECT_EQ(run.Status()["progress"]["loss"], "0.5");
  EXPECT_THAT(run.Get("/metrics"), HasSubstr("lockstep_loss"));
  run.launcher().Signal(SIGTERM);
  run.Wait();
}

TEST(RunTest, EndsWhenItsTimeIsOver) {
  nlohmann::json spec = ShellSpec(1, "exec sleep 1000");
  spec["runPolicy"] = {{"activeDeadlineSeconds", 1}};
  JobRun run(spec);
  EXPECT_EQ(run.Wait(), 3) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(), HasSubstr("activeDeadlineSeconds"));
}

}  // namespace
}  // namespace lockstep::testing
