#include "common/event_loop.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <vector>

namespace lockstep {
namespace {

using std::chrono::milliseconds;

struct Pipe {
  Pipe() {
    int fds[2];
    EXPECT_EQ(::pipe(fds), 0);
    read.reset(fds[0]);
    write.reset(fds[1]);
  }
  UniqueFd read, write;
};

TEST(EventLoopTest, RunsTimersInTheOrderOfTheirTimes) {
  auto loop = std::move(EventLoop::Create()).value();
  std::vector<int> ran;
  loop->After(milliseconds(20), [&] {
    ran.push_back(2);
    loop->Stop();
  });
  loop->After(milliseconds(1), [&] { ran.push_back(1); });
  const auto cancelled = loop->After(milliseconds(5), [&] { ran.push_back(99); });
  loop->Cancel(cancelled);
  loop->Run();
  EXPECT_EQ(ran, (std::vector<int>{1, 2}));
}

TEST(EventLoopTest, ATimerNeverRunsBeforeItsTime) {
  auto loop = std::move(EventLoop::Create()).value();
  const auto start = EventLoop::Clock::now();
  loop->After(milliseconds(7), [&] { loop->Stop(); });
  loop->Run();
  EXPECT_GE(EventLoop::Clock::now() - start, milliseconds(7));
}

TEST(EventLoopTest, CallsBackForAReadableDescriptor) {
  auto loop = std::move(EventLoop::Create()).value();
  Pipe pipe;
  int calls = 0;
  ASSERT_TRUE(loop->Watch(pipe.read.get(), EPOLLIN,
                          [&](uint32_t) {
                            ++calls;
                            loop->Stop();
                          })
                  .ok());
  ASSERT_EQ(::write(pipe.write.get(), "x", 1), 1);
  loop->Run();
  EXPECT_EQ(calls, 1);
}

TEST(EventLoopTest, ACallbackMayUnwatchItselfAndTheOther) {
  auto loop = std::move(EventLoop::Create()).value();
  Pipe a, b;
  int calls = 0;
  const auto once = [&](uint32_t) {
    ++calls;
    loop->Unwatch(a.read.get());
    loop->Unwatch(b.read.get());
  };
  ASSERT_TRUE(loop->Watch(a.read.get(), EPOLLIN, once).ok());
  ASSERT_TRUE(loop->Watch(b.read.get(), EPOLLIN, once).ok());
  ASSERT_EQ(::write(a.write.get(), "x", 1), 1);
  ASSERT_EQ(::write(b.write.get(), "x", 1), 1);
  loop->RunOnce(milliseconds(100));
  loop->RunOnce(milliseconds(1));
  EXPECT_EQ(calls, 1);
}

TEST(EventLoopTest, WatchingADescriptorTwiceIsAnError) {
  auto loop = std::move(EventLoop::Create()).value();
  Pipe pipe;
  ASSERT_TRUE(loop->Watch(pipe.read.get(), EPOLLIN, [](uint32_t) {}).ok());
  EXPECT_FALSE(loop->Watch(pipe.read.get(), EPOLLIN, [](uint32_t) {}).ok());
}

}  // namespace
}  // namespace lockstep
