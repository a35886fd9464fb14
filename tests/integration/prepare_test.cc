#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>

#include "tests/support/free_port.h"
#include "tests/support/launcher_process.h"

// spec.program.prepare.
namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PrepareTest : public ::testing::Test {
 protected:
  nlohmann::json Spec(const std::string& prepare, const std::string& script = "exit 0") const {
    nlohmann::json spec = ShellSpec(2, script);
    spec["program"]["prepare"] = {"sh", "-c", prepare};
    spec["program"]["env"] = {{{"name", "MARK"}, {"value", mark_}}};
    return spec;
  }

  std::unique_ptr<JobRun> Start(const nlohmann::json& spec, std::vector<std::string> arguments = {},
                                std::vector<std::pair<std::string, std::string>> environment = {}) const {
    environment.emplace_back("LOCKSTEP_DEVICE_LEDGER", folder_.File("locks"));
    return std::make_unique<JobRun>(
        spec, JobRun::Options{.arguments = std::move(arguments), .environment = std::move(environment)});
  }

  std::string Marks() const { return ReadText(mark_); }

  TemporaryFolder folder_;
  const std::string mark_ = folder_.File("mark");
};

TEST_F(PrepareTest, RunsOnceBeforeTheRanksAndNotAgainWhenTheyRestart) {
  const auto run = Start(Spec("echo here:$RANK:$LOCKSTEP_JOB; sleep 0.2; echo done >> $MARK",
                              "cat $MARK; test $LOCKSTEP_GENERATION -gt 0"));
  EXPECT_EQ(run->Wait(), 0) << run->launcher().err();
  EXPECT_EQ(Marks(), "done\n");
  EXPECT_THAT(run->launcher().out(), HasSubstr("[prepare] here::test\n"));
  EXPECT_THAT(ReadText(run->File("prepare.log")), HasSubstr("\nhere::test\n"));
  for (int rank = 0; rank < 2; ++rank) EXPECT_THAT(run->Log(rank), HasSubstr("done\n")) << "it came first";
}

TEST_F(PrepareTest, IsTriedAgainAsOftenAsARankWouldBe) {
  nlohmann::json spec = Spec("echo try >> $MARK; test $(wc -l < $MARK) -eq 2");
  const auto run = Start(spec);
  EXPECT_EQ(run->Wait(), 0) << run->launcher().err();
  EXPECT_EQ(Marks(), "try\ntry\n");
  EXPECT_THAT(run->launcher().err(), HasSubstr("it is run again (1 of 3)"));
}

TEST_F(PrepareTest, EndsTheJobWhenItGoesOnFailing) {
  nlohmann::json spec = Spec("echo try >> $MARK; echo 'no such host' >&2; exit 7", "echo started");
  spec["runPolicy"] = {{"maxRestarts", 1}};
  const auto run = Start(spec);
  EXPECT_EQ(run->Wait(), 7);
  EXPECT_EQ(Marks(), "try\ntry\n");
  EXPECT_THAT(run->launcher().err(), HasSubstr("prepare (pid "));
  EXPECT_THAT(run->launcher().err(), HasSubstr("    | no such host\n"));
  EXPECT_THAT(run->launcher().err(), HasSubstr("test: ended with exit code 7"));
  EXPECT_THAT(run->launcher().out(), Not(HasSubstr("started")));
}

TEST_F(PrepareTest, EndsWhenTheJobIsAskedToStop) {
  const auto run = Start(Spec("echo $$ > $MARK; sleep 600 & wait"));
  ASSERT_TRUE(WaitUntil([&] { return Marks().ends_with('\n'); })) << run->launcher().err();
  run->launcher().Signal(SIGTERM);
  EXPECT_EQ(run->Wait(), 128 + SIGTERM) << run->launcher().err();
  EXPECT_FALSE(IsAlive(std::stoi(Marks())));
}

// Two jobs that need the same data.
TEST_F(PrepareTest, IsDoneByOneOfTwoThatWantItAtOnce) {
  const std::string gate = folder_.File("gate");
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  const nlohmann::json spec = Spec("echo done >> $MARK; read go < " + gate);
  const auto first = Start(spec);
  ASSERT_TRUE(WaitUntil([&] { return !Marks().empty(); })) << first->launcher().err();
  const auto second = Start(spec);
  EXPECT_TRUE(WaitUntil([&] {
    return second->launcher().err().find("another job runs \"sh -c") != std::string::npos;
  })) << second->launcher().err();
  std::ofstream(gate) << "go\n";
  EXPECT_EQ(first->Wait(), 0) << first->launcher().err();
  EXPECT_EQ(second->Wait(), 0) << second->launcher().err();
  EXPECT_EQ(Marks(), "done\n");
  // One that comes later cannot know that it is still so.
  const auto third = Start(Spec("echo again >> $MARK"));
  EXPECT_EQ(third->Wait(), 0) << third->launcher().err();
  EXPECT_EQ(Marks(), "done\nagain\n");
}

// As an OOM killer leaves it.
TEST_F(PrepareTest, IsDoneByTheOtherWhereTheFirstIsKilled) {
  const nlohmann::json spec = Spec("echo $FIRST >> $MARK; test -z \"$FIRST\" || sleep 600");
  const auto first = Start(spec, {}, {{"FIRST", "first"}});
  ASSERT_TRUE(WaitUntil([&] { return !Marks().empty(); })) << first->launcher().err();
  const auto second = Start(spec);
  first->launcher().Signal(SIGKILL);
  EXPECT_EQ(second->Wait(), 0) << second->launcher().err();
  EXPECT_EQ(Marks(), "first\n\n");
}

TEST_F(PrepareTest, OfAnotherReplicaEndsThatReplica) {
  nlohmann::json spec = Spec("exit ${FAILS:-0}");
  spec["replicas"] = 2;
  spec["runPolicy"] = {{"maxRestarts", 0}};
  const std::string rendezvous = "127.0.0.1:" + std::to_string(FreePort());
  const auto arguments = [&](int replica) {
    return std::vector<std::string>{"--replica", std::to_string(replica), "--rendezvous",
                                    rendezvous,  "--token-file",          folder_.File("token")};
  };
  const auto leader = Start(spec, arguments(0));
  ASSERT_TRUE(WaitUntil([&] { return !ReadText(folder_.File("token")).empty(); }));
  const auto follower = Start(spec, arguments(1), {{"FAILS", "9"}});
  EXPECT_EQ(follower->Wait(), 9) << follower->launcher().err();
  EXPECT_THAT(follower->launcher().err(), HasSubstr("prepare: exit code 9"));
  // In its place comes one that can.
  const auto another = Start(spec, arguments(1));
  EXPECT_EQ(another->Wait(), 0) << another->launcher().err();
  EXPECT_EQ(leader->Wait(), 0) << leader->launcher().err();
}

}  // namespace
}  // namespace lockstep::testing
