#include "launcher/process/signal_watcher.h"

#include "tests/unit/process/test_util.h"

namespace lockstep::process {
namespace {

TEST(SignalWatcherTest, TurnsSignalsIntoCallbacks) {
  auto loop = std::move(EventLoop::Create()).value();
  std::vector<int> seen;
  auto watcher = SignalWatcher::Create(*loop, {SIGINT, SIGTERM}, [&](int signal) { seen.push_back(signal); });
  ASSERT_TRUE(watcher.ok());
  ::kill(::getpid(), SIGINT);
  ::kill(::getpid(), SIGTERM);
  EXPECT_TRUE(RunUntil(*loop, [&] { return seen.size() == 2; }));
  ::kill(::getpid(), SIGINT);
  EXPECT_TRUE(RunUntil(*loop, [&] { return seen.size() == 3; }));
  EXPECT_EQ(seen, (std::vector<int>{SIGINT, SIGTERM, SIGINT}));
}

TEST(SignalWatcherTest, LeavesWhatWasIgnoredIgnored) {
  auto loop = std::move(EventLoop::Create()).value();
  const auto old_handler = ::signal(SIGHUP, SIG_IGN);
  std::vector<int> seen;
  {
    auto watcher =
        SignalWatcher::Create(*loop, {SIGHUP, SIGUSR1}, [&](int signal) { seen.push_back(signal); });
    ASSERT_TRUE(watcher.ok());
    ::kill(::getpid(), SIGHUP);
    ::kill(::getpid(), SIGUSR1);
    EXPECT_TRUE(RunUntil(*loop, [&] { return !seen.empty(); }));
  }
  ::signal(SIGHUP, old_handler);
  EXPECT_EQ(seen, std::vector<int>{SIGUSR1});
}

TEST(SignalWatcherTest, GivesTheMaskBackAndMayGoInItsOwnCallback) {
  sigset_t before, after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  auto loop = std::move(EventLoop::Create()).value();
  std::unique_ptr<SignalWatcher> watcher;
  watcher = std::move(SignalWatcher::Create(*loop, {SIGUSR2}, [&](int) { watcher.reset(); })).value();
  ::kill(::getpid(), SIGUSR2);
  EXPECT_TRUE(RunUntil(*loop, [&] { return watcher == nullptr; }));
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&after, SIGUSR2), sigismember(&before, SIGUSR2));
}

}  // namespace
}  // namespace lockstep::process
