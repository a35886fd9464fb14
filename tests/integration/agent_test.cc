#include "launcher/agent/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/contract/exit_codes.h"
#include "tests/support/free_port.h"
#include "tests/support/launcher_process.h"

// A pod's main process, without the pod.
namespace lockstep::testing {
namespace {

using agent::PodExitCode;
using agent::RestartsAfter;

// The agents of one job, each with the files that its pod would have.
class AgentTest : public ::testing::Test {
 protected:
  // `uid`: of the pod; empty: not known. `role`: empty in a job of one.
  std::unique_ptr<LauncherProcess> Start(const nlohmann::json& spec, int index = 0,
                                         const std::string& uid = "", const std::string& role = "") {
    const nlohmann::json manifest = {{"apiVersion", "lockstep.dev/v1alpha1"},
                                     {"kind", "TrainingJob"},
                                     {"metadata", {{"name", "test"}}},
                                     {"spec", spec}};
    const std::string pod = "pod-" + role + std::to_string(index) + uid;
    LauncherProcess::Options options{
        .arguments = {"agent", "--manifest", folder_.Write("manifest.json", manifest.dump()), "--attempt",
                      "3", "--run-dir", folder_.File(pod), "--termination-log", Verdict(index)},
        .environment = {{"JOB_COMPLETION_INDEX", std::to_string(index)}}};
    if (!uid.empty()) options.environment.emplace_back("LOCKSTEP_POD_UID", uid);
    if (!role.empty()) {
      options.arguments.push_back("--role");
      options.arguments.push_back(role);
    }
    if (!role.empty() || spec.value("replicas", 1) > 1) {
      // As a Secret is mounted: for the pod's group too.
      const std::string token = folder_.Write("token", std::string(64, 'a') + "\n");
      EXPECT_EQ(::chmod(token.c_str(), 0440), 0);
      for (const std::string& argument : {std::string("--rendezvous"), "localhost:" + std::to_string(port_),
                                          std::string("--token-file"), token}) {
        options.arguments.push_back(argument);
      }
    }
    return std::make_unique<LauncherProcess>(options);
  }

  std::string Verdict(int index = 0) const { return folder_.File("termination-" + std::to_string(index)); }

  // The launcher below the keeper; 0: none.
  static pid_t AgentOf(const LauncherProcess& keeper) {
    const std::string pid = std::to_string(keeper.pid());
    pid_t agent = 0;
    std::istringstream(ReadText("/proc/" + pid + "/task/" + pid + "/children")) >> agent;
    return agent;
  }

  TemporaryFolder folder_;
  int port_ = FreePort();
};

TEST_F(AgentTest, RunsAJobOfOneReplica) {
  auto pod = Start(ShellSpec(2, "echo attempt $LOCKSTEP_ATTEMPT rank $RANK of $WORLD_SIZE"));
  EXPECT_EQ(pod->Wait(), 0) << pod->err();
  EXPECT_THAT(pod->out(), ::testing::HasSubstr("attempt 3 rank 1 of 2"));
  EXPECT_EQ(ReadText(Verdict()), "");
}

TEST_F(AgentTest, FindsReplica0AndSharesItsToken) {
  nlohmann::json spec = ShellSpec(
      1, "echo rank $RANK of $WORLD_SIZE; test \"$(cat $LOCKSTEP_TOKEN_FILE)\" = " + std::string(64, 'a'));
  spec["replicas"] = 2;
  auto second = Start(spec, 1);
  auto first = Start(spec, 0);
  EXPECT_EQ(first->Wait(), 0) << first->err();
  EXPECT_EQ(second->Wait(), 0) << second->err();
  EXPECT_THAT(second->out(), ::testing::HasSubstr("rank 1 of 2"));
}

TEST_F(AgentTest, IsBackWithinTwoSecondsWhenItIsKilled) {
  nlohmann::json spec = ShellSpec(1, "echo x >> " + folder_.File("starts-") + "$RANK; while [ ! -e " +
                                         folder_.File("end") + " ]; do sleep 0.05; done");
  spec["replicas"] = 2;
  auto first = Start(spec, 0);
  auto second = Start(spec, 1);
  const auto starts = [&](const std::string& rank) {
    return ReadText(folder_.File("starts-" + rank)).size() / 2;
  };
  ASSERT_TRUE(WaitUntil([&] { return starts("0") == 1 && starts("1") == 1; }))
      << first->err() << second->err();

  // First a follower's, then the leader's: each time all ranks are started again, together.
  for (const LauncherProcess* killed : {second.get(), first.get()}) {
    const size_t before = starts("0");
    const pid_t agent = AgentOf(*killed);
    ASSERT_GT(agent, 0);
    const auto since = std::chrono::steady_clock::now();
    ASSERT_EQ(::kill(agent, SIGKILL), 0);
    ASSERT_TRUE(WaitUntil([&] {
      const pid_t next = AgentOf(*killed);
      return next > 0 && next != agent;
    }));
    EXPECT_LT(std::chrono::steady_clock::now() - since, std::chrono::seconds(2));
    ASSERT_TRUE(WaitUntil([&] { return starts("0") > before && starts("1") > before; }))
        << first->err() << second->err();
  }
  folder_.Write("end", "");
  EXPECT_EQ(first->Wait(), 0) << first->err();
  EXPECT_EQ(second->Wait(), 0) << second->err();
}

// The generations of a pod go on where they were, and its store is known by its uid.
TEST_F(AgentTest, GoesOnWithTheGenerationsOfItsPod) {
  const std::string uid = "0f3c2f0a-5d4e-4b7c-9a1b-2c3d4e5f6071";
  auto pod = Start(ShellSpec(1, "echo $LOCKSTEP_GENERATION $LOCKSTEP_RUN >> " + folder_.File("starts") +
                                    "; while [ ! -e " + folder_.File("end") + " ]; do sleep 0.05; done"),
                   0, uid);
  const auto starts = [&] { return ReadText(folder_.File("starts")); };
  const std::string run = " 0f3c2f0a5d4e4b7c9a1b2c3d4e5f6071\n";
  ASSERT_TRUE(WaitUntil([&] { return starts() == "0" + run; })) << pod->err();
  const pid_t agent = AgentOf(*pod);
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  ASSERT_TRUE(WaitUntil([&] { return starts() == "0" + run + "1" + run; })) << starts() << pod->err();
  folder_.Write("end", "");
  EXPECT_EQ(pod->Wait(), 0) << pod->err();
}

// Cut off, and replaced meanwhile.
TEST_F(AgentTest, EndsForGoodWhenItsPodWasReplaced) {
  nlohmann::json spec =
      ShellSpec(1, "echo here; while [ ! -e " + folder_.File("end") + " ]; do sleep 0.05; done");
  spec["replicas"] = 2;
  auto leader = Start(spec, 0, "pod-0");
  auto old = Start(spec, 1, "pod-1a");
  ASSERT_TRUE(WaitUntil([&] { return !old->out().empty(); })) << leader->err();
  const pid_t frozen = AgentOf(*old);
  ASSERT_GT(frozen, 0);
  ASSERT_EQ(::kill(frozen, SIGSTOP), 0);
  auto next = Start(spec, 1, "pod-1b");
  ASSERT_TRUE(WaitUntil([&] { return leader->err().find("generation 1 starts") != std::string::npos; }))
      << leader->err();
  ASSERT_EQ(::kill(frozen, SIGCONT), 0);
  EXPECT_EQ(old->Wait(), contract::kExitSuperseded) << old->err();
  EXPECT_THAT(old->err(), ::testing::HasSubstr("this one was replaced, and must end"));
  EXPECT_EQ(ReadText(Verdict(1)), "") << "the job has not failed";
  folder_.Write("end", "");
  EXPECT_EQ(leader->Wait(), 0) << leader->err();
  EXPECT_EQ(next->Wait(), 0) << next->err();
}

TEST_F(AgentTest, LeavesAVerdictWhenTheJobHasFailed) {
  nlohmann::json spec = ShellSpec(2, "test $RANK = 0 || exit 5; sleep 60");
  spec["runPolicy"] = {{"maxRestarts", 1}};
  auto pod = Start(spec);
  EXPECT_EQ(pod->Wait(), contract::kExitPermanent) << pod->err();
  const auto verdict = nlohmann::json::parse(ReadText(Verdict()));
  EXPECT_EQ(verdict["exitCode"], 5);
  EXPECT_EQ(verdict["process"], 1);
  EXPECT_THAT(verdict["message"].get<std::string>(), ::testing::HasSubstr("rank 1"));
}

TEST_F(AgentTest, SaysWhyItCannotRunTheJob) {
  auto pod = Start({{"replicas", 1}});
  EXPECT_EQ(pod->Wait(), contract::kExitUsage);
  EXPECT_EQ(nlohmann::json::parse(ReadText(Verdict()))["reason"], "CannotRun");
}

TEST_F(AgentTest, EndsAsALostPodWhenAskedToStop) {
  auto pod = Start(ShellSpec(1, "echo here; sleep 60"));
  ASSERT_TRUE(WaitUntil([&] { return !pod->out().empty(); })) << pod->err();
  pod->Signal(SIGTERM);
  EXPECT_EQ(pod->Wait(), 128 + SIGTERM) << pod->err();
  EXPECT_EQ(ReadText(Verdict()), "");
}

TEST(PodExitCodeTest, TellsAFailedJobFromALostPod) {
  const rendezvous::FailureReport failure{.reason = "Error"};
  struct Case {
    job::Outcome outcome;
    int code;
    bool restarts;
  };
  for (const auto& [outcome, code, restarts] : {
           Case{{.exit_code = 0}, 0, false},
           Case{{.exit_code = 0, .asked_to_stop = true}, 0, false},
           Case{{.exit_code = 75, .asked_to_stop = true}, 143, false},
           Case{{.exit_code = 2}, 2, false},
           Case{{.exit_code = 2, .failure = failure}, 3, false},
           Case{{.exit_code = 137, .failure = failure}, 3, false},
           Case{{.exit_code = 12}, 12, true},
           Case{{.exit_code = 12, .failure = failure}, 3, false},
           Case{{.exit_code = 13, .failure = failure}, 13, false},
           Case{{.exit_code = 75}, 75, true},
           Case{{.exit_code = contract::kExitSuperseded}, 4, false},
           Case{{.exit_code = 4, .failure = rendezvous::FailureReport{.own_trainer = true}}, 4, false},
           Case{{.exit_code = 4, .failure = failure}, 3, false},
       }) {
    EXPECT_EQ(PodExitCode(outcome), code);
    EXPECT_EQ(RestartsAfter(PodExitCode(outcome)), restarts);
  }
  EXPECT_TRUE(RestartsAfter(128 + SIGKILL)) << "the agent was killed";
  EXPECT_TRUE(RestartsAfter(128 + SIGSEGV));
}

// Each index counts within its role; the first role's first leads.
TEST_F(AgentTest, AgentsOfSeveralRolesAreOneJob) {
  const auto role = [](const char* name, int replicas) {
    return nlohmann::json{
        {"name", name}, {"replicas", replicas}, {"processesPerReplica", 1}, {"devices", {{"type", "CPU"}}}};
  };
  // (The servers are stopped when the workers have ended.)
  const std::string said = folder_.File("said");
  const nlohmann::json spec = {
      {"roles", {role("ps", 1), role("worker", 2)}},
      {"program",
       {{"command",
         {"sh", "-c",
          "echo $LOCKSTEP_ROLE $LOCKSTEP_ROLE_RANK is rank $RANK of $WORLD_SIZE; "
          "test $LOCKSTEP_ROLE = worker || { : >" +
              said + "; exec sleep 1000; }; while [ ! -e " + said + " ]; do sleep 0.01; done"}}}}};
  auto second = Start(spec, 1, "", "worker");
  auto first = Start(spec, 0, "", "worker");
  auto server = Start(spec, 0, "", "ps");
  EXPECT_EQ(server->Wait(), 0) << server->err();
  EXPECT_EQ(first->Wait(), 0) << first->err();
  EXPECT_EQ(second->Wait(), 0) << second->err();
  EXPECT_THAT(server->out(), ::testing::HasSubstr("ps 0 is rank 0 of 3"));
  EXPECT_THAT(first->out(), ::testing::HasSubstr("worker 0 is rank 1 of 3"));
  EXPECT_THAT(second->out(), ::testing::HasSubstr("worker 1 is rank 2 of 3"));
}

TEST_F(AgentTest, ARoleThatTheJobHasNotIsRefused) {
  auto pod = Start(ShellSpec(1, "true"), 0, "", "ps");
  EXPECT_EQ(pod->Wait(), contract::kExitUsage);
  EXPECT_THAT(ReadText(Verdict()), ::testing::HasSubstr("no such role"));
}

TEST_F(AgentTest, TpusAreThePods) {
  auto pod =
      Start({{"devices", {{"type", "TPU"}, {"accelerator", "tpu-v5-lite-podslice"}, {"topology", "2x2"}}},
             {"program",
              {{"framework", "JAX"},
               {"command",
                {"sh", "-c",
                 "echo $LOCKSTEP_DEVICE worker $TPU_WORKER_ID of $TPU_WORKER_HOSTNAMES, $JAX_PLATFORMS, "
                 "processes $WORLD_SIZE"}}}}});
  EXPECT_EQ(pod->Wait(), 0) << pod->err();
  EXPECT_THAT(pod->out(), ::testing::HasSubstr("TPU worker 0 of localhost, tpu, processes 1"));
}

}  // namespace
}  // namespace lockstep::testing
