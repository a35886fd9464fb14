#include "launcher/operator/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

namespace lockstep::op {
namespace {

using std::chrono::milliseconds;
using Clock = WorkQueue::Clock;

WorkQueue::Key Key(const std::string& name) { return {"team", name}; }

TEST(WorkQueueTest, GivesOneTurnForManyAdditions) {
  WorkQueue queue;
  for (int i = 0; i < 5; ++i) queue.Add(Key("a"));
  queue.Add(Key("b"));
  EXPECT_EQ(queue.depth(), 2U);
  EXPECT_EQ(queue.Get()->key, Key("a"));
  EXPECT_EQ(queue.Get()->key, Key("b"));
  EXPECT_EQ(queue.depth(), 0U);
}

TEST(WorkQueueTest, GivesAnotherTurnForAnAdditionDuringOne) {
  WorkQueue queue;
  queue.Add(Key("a"));
  const auto turn = queue.Get();
  queue.Add(Key("a"));
  EXPECT_EQ(queue.depth(), 0U) << "not two at a time";
  queue.Done(turn->key);
  EXPECT_EQ(queue.depth(), 1U);
  EXPECT_EQ(queue.Get()->key, Key("a"));
}

TEST(WorkQueueTest, WaitsForTheFirstOfSeveralDelays) {
  WorkQueue queue;
  const auto started = Clock::now();
  queue.AddAfter(Key("a"), std::chrono::hours(1));
  queue.AddAfter(Key("a"), milliseconds(30));
  queue.AddAfter(Key("a"), std::chrono::hours(2));
  EXPECT_EQ(queue.Get()->key, Key("a"));
  EXPECT_GE(Clock::now() - started, milliseconds(30));
}

TEST(WorkQueueTest, WaitsLongerAfterEachFailureUntilForgotten) {
  WorkQueue queue;
  const auto wait = [&] {
    const auto started = Clock::now();
    queue.AddAfterFailure(Key("a"));
    queue.Done(queue.Get()->key);
    return Clock::now() - started;
  };
  for (const int at_least : {5, 10, 20, 40, 80}) EXPECT_GE(wait(), milliseconds(at_least));
  queue.Forget(Key("a"));
  queue.AddAfterFailure(Key("a"));
  // The next would have been after 160 ms: something else that is due before it comes after it now.
  queue.AddAfter(Key("b"), milliseconds(120));
  EXPECT_EQ(queue.Get()->key, Key("a"));
}

TEST(WorkQueueTest, LetsAllGoWhenItIsShutDown) {
  WorkQueue queue;
  std::thread waiting([&] { EXPECT_FALSE(queue.Get()); });
  queue.ShutDown();
  waiting.join();
  queue.Add(Key("a"));
  EXPECT_FALSE(queue.Get());
}

TEST(WorkQueueTest, NeverGivesAJobToTwoThreadsAtOnce) {
  constexpr int kKeys = 8;
  constexpr int kTurns = 2000;
  WorkQueue queue;
  std::map<WorkQueue::Key, std::atomic<int>> working;
  for (int i = 0; i < kKeys; ++i) working[Key(std::to_string(i))] = 0;
  std::atomic<int> turns = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (const auto turn = queue.Get()) {
        EXPECT_EQ(working.at(turn->key).fetch_add(1), 0);
        if (++turns >= kTurns) queue.ShutDown();
        queue.Add(turn->key);
        working.at(turn->key).fetch_sub(1);
        queue.Done(turn->key);
      }
    });
  }
  for (const auto& [key, count] : working) queue.Add(key);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(turns, kTurns);
}

}  // namespace
}  // namespace lockstep::op
