#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <sstream>

#include "tests/support/free_port.h"
#include "tests/support/launcher_process.h"

// `lockstep run` of jobs with several roles.
namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kServe[] = "exec sleep 1000";

nlohmann::json Role(const std::string& name, int replicas = 1) {
  return {{"name", name}, {"replicas", replicas}, {"processesPerReplica", 1}, {"devices", {{"type", "CPU"}}}};
}

nlohmann::json RolesSpec(const nlohmann::json& roles, const std::string& script) {
  return {{"roles", roles}, {"program", {{"command", {"sh", "-c", script}}}}};
}

// One script for all roles: the workers (and the chief) run `work`, the others serve.
std::string Script(const std::string& work, const std::string& serve = kServe) {
  return "case $LOCKSTEP_ROLE in worker|chief) " + work + ";; *) " + serve + ";; esac";
}

// Says its place, then waits until the file is there.
std::string WorkUntil(const std::string& file) {
  return "echo incarnation $LOCKSTEP_INCARNATION of generation $LOCKSTEP_GENERATION; until test -e '" + file +
         "'; do sleep 0.02; done; exit 0";
}

class RolesTest : public ::testing::Test {
 protected:
  std::string Go() const { return folder_.File("go"); }
  void LetThemFinish() const { folder_.Write("go", ""); }

  // The pid of a rank, once it is of this incarnation and said so.
  static pid_t PidOf(const JobRun& run, size_t rank, const std::function<bool(pid_t)>& is_it) {
    pid_t pid = 0;
    WaitUntil([&] {
      const nlohmann::json status = run.Status();
      if (!status.is_object() || status["ranks"].size() <= rank) return false;
      pid = status["ranks"][rank].value("pid", 0);
      return pid > 0 && is_it(pid);
    });
    return pid;
  }

  TemporaryFolder folder_;
};

TEST_F(RolesTest, EveryProcessKnowsItsPlace) {
  const std::string place =
      "echo $LOCKSTEP_ROLE $LOCKSTEP_ROLE_RANK of $LOCKSTEP_ROLE_SIZE, rank $RANK of $WORLD_SIZE, local "
      "$LOCAL_RANK of $LOCAL_WORLD_SIZE, group $GROUP_RANK of $GROUP_WORLD_SIZE, roles $LOCKSTEP_ROLES, "
      "incarnation $LOCKSTEP_INCARNATION; ";
  // The servers have said theirs before the workers end.
  const std::string there = folder_.path().string();
  JobRun run(
      RolesSpec({Role("worker", 2), Role("ps", 2), Role("evaluator")},
                place + "touch '" + there + "'/$RANK; " +
                    Script("cd '" + there + "'; until test -e 2 -a -e 3 -a -e 4; do sleep 0.02; done")));
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  const std::string roles = ", roles worker=2,ps=2,evaluator=1, incarnation 0\n";
  const std::vector<std::string> places = {
      "worker 0 of 2, rank 0 of 5, local 0 of 5", "worker 1 of 2, rank 1 of 5, local 1 of 5",
      "ps 0 of 2, rank 2 of 5, local 2 of 5", "ps 1 of 2, rank 3 of 5, local 3 of 5",
      "evaluator 0 of 1, rank 4 of 5, local 4 of 5"};
  for (size_t rank = 0; rank < places.size(); ++rank) {
    EXPECT_THAT(run.Log(static_cast<int>(rank)), HasSubstr(places[rank] + ", group 0 of 1" + roles));
  }
}

TEST_F(RolesTest, ARoleRunsItsOwnProgram) {
  nlohmann::json evaluator = Role("evaluator");
  evaluator["program"] = {{"command", {"sh", "-c", "echo evaluates; touch '" + Go() + "'; exec sleep 1000"}}};
  JobRun run(RolesSpec({Role("worker"), evaluator}, WorkUntil(Go())));
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.Log(1), HasSubstr("evaluates"));
  EXPECT_THAT(run.Log(0), Not(HasSubstr("evaluates")));
}

TEST_F(RolesTest, TensorFlowIsToldItsCluster) {
  nlohmann::json spec =
      RolesSpec({Role("chief"), Role("worker", 2), Role("ps"), Role("evaluator")},
                "echo \"$TF_CONFIG\"; touch '" + folder_.path().string() + "'/$RANK; " +
                    Script("cd '" + folder_.path().string() +
                           "'; until test -e 1 -a -e 2 -a -e 3 -a -e 4; do sleep 0.02; done"));
  spec["program"]["framework"] = "TensorFlow";
  JobRun run(spec);
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  const auto config = [&](int rank) {
    const std::string log = run.Log(rank);
    std::string line = log.substr(log.find('{'));
    return nlohmann::json::parse(line.substr(0, line.find('\n')), nullptr, false);
  };
  const nlohmann::json worker = config(2);
  EXPECT_EQ(worker["task"], (nlohmann::json{{"type", "worker"}, {"index", 1}}));
  EXPECT_EQ(worker["cluster"]["chief"].size(), 1u);
  EXPECT_EQ(worker["cluster"]["worker"].size(), 2u);
  EXPECT_EQ(worker["cluster"]["ps"].size(), 1u);
  EXPECT_FALSE(worker["cluster"].contains("evaluator"));
  EXPECT_EQ(config(3)["task"]["type"], "ps");
  EXPECT_EQ(config(4)["task"], (nlohmann::json{{"type", "evaluator"}, {"index", 0}}));
  EXPECT_EQ(config(0)["cluster"], config(4)["cluster"]);
}

// As TensorFlow's ParameterServerStrategy has it: workers are servers, and only the chief knows when it is
// done.
TEST_F(RolesTest, BesideServersTheChiefAloneEndsTheJob) {
  JobRun run(RolesSpec({Role("chief"), Role("worker", 2), Role("ps")},
                       "test $LOCKSTEP_ROLE = chief || exec sleep 1000; echo trained"));
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.Log(0), HasSubstr("trained"));
}

class RestartsAloneTest : public RolesTest, public ::testing::WithParamInterface<int> {};

TEST_P(RestartsAloneTest, ALostProcessIsStartedAgainWhileTheOthersGoOn) {
  const auto lost = static_cast<size_t>(GetParam());
  JobRun run(RolesSpec({Role("worker", 2), Role("ps")},
                       Script(WorkUntil(Go()), "echo incarnation $LOCKSTEP_INCARNATION; exec sleep 1000")));
  const auto before = run.Pids(0);
  ASSERT_EQ(before.size(), 3u) << run.launcher().err();
  ::kill(before[lost], SIGKILL);
  const pid_t again = PidOf(run, lost, [&](pid_t pid) { return pid != before[lost]; });
  EXPECT_NE(again, before[lost]);
  const nlohmann::json status = run.Status();
  EXPECT_EQ(status["generation"], 0);
  EXPECT_EQ(status["phase"], "Running");
  EXPECT_EQ(status["restarts"], 1);
  EXPECT_EQ(status["lastFailure"]["role"], lost < 2 ? "worker" : "ps");
  EXPECT_EQ(status["lastFailure"]["roleRank"], lost < 2 ? static_cast<int>(lost) : 0);
  EXPECT_THAT(run.Get("/metrics"),
              HasSubstr(std::string("lockstep_restarts_total{reason=\"Signal\",role=\"") +
                        (lost < 2 ? "worker" : "ps") + "\"} 1"));
  for (size_t rank = 0; rank < before.size(); ++rank) {
    EXPECT_EQ(IsAlive(before[rank]), rank != lost);
  }
  EXPECT_TRUE(
      WaitUntil([&] { return run.Log(static_cast<int>(lost)).find("incarnation 1") != std::string::npos; }));
  LetThemFinish();
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(), HasSubstr(lost < 2 ? "restarting rank 1 (worker 1) alone (1 of 3)"
                                                       : "restarting rank 2 (ps 0) alone (1 of 3)"));
  EXPECT_FALSE(IsAlive(again));
}

INSTANTIATE_TEST_SUITE_P(WorkerAndServer, RestartsAloneTest, ::testing::Values(1, 2));

TEST_F(RolesTest, RestartsOfAllProcessesCountTogether) {
  nlohmann::json spec = RolesSpec({Role("worker", 2), Role("ps")},
                                  Script("test $LOCKSTEP_INCARNATION = 0 && exit 9; exec sleep 1000"));
  spec["runPolicy"] = {{"maxRestarts", 1}, {"terminationGracePeriodSeconds", 1}};
  JobRun run(spec);
  EXPECT_EQ(run.Wait(), 9);
  EXPECT_THAT(run.launcher().err(), HasSubstr("1 restarts are used up (maxRestarts)"));
}

TEST_F(RolesTest, AServerThatIgnoresSigtermIsKilledAndTheJobIsDone) {
  nlohmann::json spec =
      RolesSpec({Role("worker"), Role("ps")},
                Script(WorkUntil(Go()), "trap '' TERM; touch '" + Go() + "'; while :; do sleep 0.05; done"));
  spec["runPolicy"] = {{"terminationGracePeriodSeconds", 1}};
  JobRun run(spec);
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
}

TEST_F(RolesTest, WithoutServersAllRestartTogether) {
  JobRun run(RolesSpec({Role("worker"), Role("evaluator")},
                       Script(WorkUntil(Go()), "test $LOCKSTEP_GENERATION = 0 && exit 5; touch '" + Go() +
                                                   "'; exec sleep 1000")));
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.Log(0), HasSubstr("incarnation 0 of generation 1"));
  EXPECT_THAT(run.launcher().err(), HasSubstr("rank 1 (evaluator 0"));
}

TEST_F(RolesTest, AskedToStopItDoesNotClaimToBeDone) {
  JobRun run(RolesSpec({Role("worker"), Role("ps")}, Script(kServe)));
  ASSERT_EQ(run.Pids(0).size(), 2u) << run.launcher().err();
  run.launcher().Signal(SIGTERM);
  EXPECT_EQ(run.Wait(), 128 + SIGTERM) << run.launcher().err();
}

TEST_F(RolesTest, ADryRunShowsTheRoles) {
  JobRun run(RolesSpec({Role("ps", 2), Role("worker")}, "true"), {.arguments = {"--dry-run", "-o", "json"}});
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  const nlohmann::json plan = nlohmann::json::parse(run.launcher().out(), nullptr, false);
  EXPECT_EQ(plan["worldSize"], 3);
  EXPECT_EQ(plan["processes"][1]["role"], "ps");
  EXPECT_EQ(plan["processes"][1]["roleRank"], 1);
  EXPECT_EQ(plan["processes"][2]["role"], "worker");
  EXPECT_EQ(plan["processes"][2]["environment"]["LOCKSTEP_ROLES"], "ps=2,worker=1");
}

// Each replica by a launcher of its own, as in a cluster: 0 is the server, 1 and 2 are workers.
class RolesOnMachinesTest : public RolesTest {
 protected:
  std::unique_ptr<JobRun> Start(int replica) {
    return std::make_unique<JobRun>(
        RolesSpec({Role("ps"), Role("worker", 2)},
                  Script(WorkUntil(Go()), "echo incarnation $LOCKSTEP_INCARNATION; exec sleep 1000")),
        JobRun::Options{.arguments = {"--replica", std::to_string(replica), "--rendezvous",
                                      "127.0.0.1:" + std::to_string(port_), "--token-file", Token()}});
  }
  std::string Token() {
    if (!ReadText(folder_.File("token")).empty()) return folder_.File("token");
    const std::string token = folder_.Write("token", std::string(64, 'a') + "\n");
    std::filesystem::permissions(token,
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    return token;
  }

  int port_ = FreePort();
};

TEST_F(RolesOnMachinesTest, ALostLauncherReturnsToTheGenerationThatGoesOn) {
  auto server = Start(0);
  auto worker = Start(1);
  auto lost = Start(2);
  ASSERT_EQ(lost->Pids(0).size(), 1u) << lost->launcher().err();
  const auto server_pids = server->Pids(0);
  const auto worker_pids = worker->Pids(0);
  EXPECT_TRUE(WaitUntil([&] { return lost->Log(2).find("incarnation 0") != std::string::npos; }));
  lost->launcher().Signal(SIGKILL);
  lost->Wait();
  EXPECT_TRUE(
      WaitUntil([&] { return server->launcher().err().find("replica 2 is lost") != std::string::npos; }));
  auto again = Start(2);
  EXPECT_TRUE(WaitUntil([&] {
    return again->Log(2).find("incarnation 1 of generation 0") != std::string::npos;
  })) << again->launcher().err()
      << server->launcher().err();
  EXPECT_EQ(server->Pids(0), server_pids);
  EXPECT_EQ(worker->Pids(0), worker_pids);
  EXPECT_EQ(server->Status()["restarts"], 1);
  LetThemFinish();
  EXPECT_EQ(server->Wait(), 0) << server->launcher().err();
  EXPECT_EQ(worker->Wait(), 0) << worker->launcher().err();
  EXPECT_EQ(again->Wait(), 0) << again->launcher().err();
}

TEST_F(RolesOnMachinesTest, AProcessElsewhereIsStartedAgainAlone) {
  auto server = Start(0);
  auto worker = Start(1);
  auto other = Start(2);
  const auto before = worker->Pids(0);
  ASSERT_EQ(before.size(), 1u) << worker->launcher().err();
  const auto server_pids = server->Pids(0);
  ::kill(before[0], SIGKILL);
  EXPECT_NE(PidOf(*worker, 0, [&](pid_t pid) { return pid != before[0]; }), before[0]);
  EXPECT_TRUE(
      WaitUntil([&] { return worker->Log(1).find("incarnation 1 of generation 0") != std::string::npos; }));
  EXPECT_EQ(server->Pids(0), server_pids);
  EXPECT_EQ(server->Status()["lastFailure"]["role"], "worker");
  LetThemFinish();
  for (JobRun* each : {server.get(), worker.get(), other.get()}) {
    EXPECT_EQ(each->Wait(), 0) << each->launcher().err();
  }
}

}  // namespace
}  // namespace lockstep::testing
