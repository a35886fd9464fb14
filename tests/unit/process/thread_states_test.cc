#include "launcher/process/thread_states.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/unit/process/test_util.h"

namespace lockstep::process {
namespace {

using ::testing::StartsWith;

TEST(ThreadStatesTest, TellsWhatAProcessDoes) {
  auto child = ChildProcess::Spawn(MakeLaunch(0, {"sleep", "1000"}));
  ASSERT_TRUE(child.ok());
  const std::string who = "thread " + std::to_string(child->process.pid()) + " (sleep): ";
  const auto it_is = [&](const std::string& state) {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    std::vector<std::string> states;
    do {
      states = ThreadStates(child->process.pid());
    } while ((states.size() != 1 || !states[0].starts_with(who + state)) &&
             std::chrono::steady_clock::now() < deadline);
    ASSERT_EQ(states.size(), 1u);
    EXPECT_THAT(states[0], StartsWith(who + state));
  };
  it_is("sleeps");
  child->process.Signal(SIGSTOP);
  it_is("is stopped by a signal");
  child->process.Signal(SIGKILL);
  it_is("has ended");
  ASSERT_TRUE(WaitReadable(child->process.pidfd()));
  const pid_t pid = child->process.pid();
  ASSERT_TRUE(child->process.TryWait().has_value());
  EXPECT_TRUE(ThreadStates(pid).empty());
}

TEST(ThreadStatesTest, StartsWithTheFirstThreadAndTellsHowManyMoreThereAre) {
  std::atomic<bool> over = false;
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < kMostThreadsTold + 5; ++i) threads.emplace_back([&over] { over.wait(false); });
  const auto states = ThreadStates(::getpid());
  over = true;
  over.notify_all();
  ASSERT_EQ(states.size(), kMostThreadsTold + 1);
  EXPECT_THAT(states.front(), StartsWith("thread " + std::to_string(::getpid()) + " ("));
  EXPECT_THAT(states.back(), ::testing::MatchesRegex("and [0-9]+ threads more"));
}

}  // namespace
}  // namespace lockstep::process
