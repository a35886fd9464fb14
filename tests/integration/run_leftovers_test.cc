#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/support/launcher_process.h"

// Nothing of a job survives its launcher.
namespace lockstep::testing {
namespace {

// Each rank starts a child in its group, and one that tries to get away: a session of its own, two forks, an
// empty environment. The pids go into files beside the token.
constexpr char kFamily[] =
    "d=$(dirname $LOCKSTEP_TOKEN_FILE); sleep 1000 & echo $! > $d/child.$RANK;"
    " setsid env -i sh -c '(sleep 1000 & echo $! > '$d'/away.'$RANK')' & exec sleep 1000";

std::vector<pid_t> Family(const JobRun& run, int ranks) {
  std::vector<pid_t> pids = run.Pids();
  for (int rank = 0; rank < ranks; ++rank) {
    for (const char* kind : {"child.", "away."}) {
      const std::string file = run.File(kind + std::to_string(rank));
      if (!WaitUntil([&] { return ReadText(file).find('\n') != std::string::npos; })) return {};
      pids.push_back(std::stoi(ReadText(file)));
    }
  }
  return pids;
}

bool AllGone(const std::vector<pid_t>& pids) {
  return WaitUntil([&] { return std::none_of(pids.begin(), pids.end(), IsAlive); },
                   InTime(std::chrono::seconds(20)));
}

std::vector<pid_t> ChildrenOf(pid_t pid) {
  const std::string id = std::to_string(pid);
  std::istringstream text(ReadText("/proc/" + id + "/task/" + id + "/children"));
  return {std::istream_iterator<pid_t>(text), {}};
}

TEST(RunLeftoversTest, NothingSurvivesAKilledGuard) {
  JobRun run(ShellSpec(2, kFamily));
  const auto family = Family(run, 2);
  ASSERT_EQ(family.size(), 6u) << run.launcher().err();
  run.launcher().Signal(SIGKILL);
  EXPECT_TRUE(AllGone(family));
}

TEST(RunLeftoversTest, NothingSurvivesAKilledLauncher) {
  JobRun run(ShellSpec(2, kFamily));
  const auto family = Family(run, 2);
  ASSERT_EQ(family.size(), 6u) << run.launcher().err();
  const auto launcher = ChildrenOf(run.launcher().pid());
  ASSERT_EQ(launcher.size(), 1u);
  ::kill(launcher[0], SIGKILL);
  EXPECT_TRUE(AllGone(family));
  EXPECT_EQ(run.Wait(), 128 + SIGKILL);
}

TEST(RunLeftoversTest, NothingSurvivesAnOrdinaryEnd) {
  JobRun run(ShellSpec(2, std::string(kFamily).replace(std::string(kFamily).rfind("exec"), std::string::npos,
                                                       "wait; sleep 0.2")));
  const auto family = Family(run, 2);
  ASSERT_EQ(family.size(), 6u) << run.launcher().err();
  run.launcher().Signal(SIGTERM);
  run.Wait();
  EXPECT_TRUE(AllGone(family));
}

TEST(RunLeftoversTest, GrandchildrenDoNotLiveIntoTheNextGeneration) {
  JobRun run(ShellSpec(2, kFamily));
  const auto family = Family(run, 2);
  ASSERT_EQ(family.size(), 6u) << run.launcher().err();
  ::kill(family[0], SIGKILL);
  ASSERT_EQ(run.Pids(1).size(), 2u) << run.launcher().err();
  EXPECT_TRUE(AllGone(family));
  run.launcher().Signal(SIGTERM);
  run.Wait();
}

}  // namespace
}  // namespace lockstep::testing
