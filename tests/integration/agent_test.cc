#include "launcher/agent/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/contract/exit_codes.h"
#include "common/unique_fd.h"
#include "tests/support/launcher_process.h"

// A pod's main process, without the pod.
namespace lockstep::testing {
namespace {

using agent::PodExitCode;
using agent::RestartsAfter;

int FreePort() {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  return ntohs(address.sin_port);
}

// The agents of one job, each with the files that its pod would have.
class AgentTest : public ::testing::Test {
 protected:
  std::unique_ptr<LauncherProcess> Start(const nlohmann::json& spec, int index = 0) {
    const nlohmann::json manifest = {{"apiVersion", "lockstep.dev/v1alpha1"},
                                     {"kind", "TrainingJob"},
                                     {"metadata", {{"name", "test"}}},
                                     {"spec", spec}};
    const std::string pod = "pod-" + std::to_string(index);
    LauncherProcess::Options options{
        .arguments = {"agent", "--manifest", folder_.Write("manifest.json", manifest.dump()), "--attempt",
                      "3", "--run-dir", folder_.File(pod), "--termination-log", Verdict(index)},
        .environment = {{"JOB_COMPLETION_INDEX", std::to_string(index)}}};
    if (spec.value("replicas", 1) > 1) {
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
       }) {
    EXPECT_EQ(PodExitCode(outcome), code);
    EXPECT_EQ(RestartsAfter(PodExitCode(outcome)), restarts);
  }
  EXPECT_TRUE(RestartsAfter(128 + SIGKILL)) << "the agent was killed";
  EXPECT_TRUE(RestartsAfter(128 + SIGSEGV));
}

}  // namespace
}  // namespace lockstep::testing
