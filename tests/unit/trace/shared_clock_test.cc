#include "trainer/trace/shared_clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/support/in_memory_store.h"

namespace lockstep::trainer::trace {
namespace {

using std::chrono::nanoseconds;

TEST(SharedClockTest, OneMachineAsksNobody) {
  const auto offset = OffsetToFirstMachine({}, nullptr, {});
  ASSERT_TRUE(offset.ok());
  EXPECT_EQ(offset->count(), 0);
}

TEST(SharedClockTest, EveryProcessOfAMachineHasTheOffsetOfItsClock) {
  using Real = std::chrono::steady_clock;
  // Clocks that show what machine 0's shows, but for this.
  const std::vector<nanoseconds> ahead = {nanoseconds(0), std::chrono::hours(100), -std::chrono::seconds(7)};
  lockstep::testing::InMemoryStore store;
  const auto deadline = Real::now() + std::chrono::seconds(30);
  struct Found {
    int machine = 0;
    Result<nanoseconds> offset{nanoseconds(0)};
  };
  std::vector<Found> found(6);
  std::atomic<int64_t> took{0};
  std::vector<std::thread> processes;
  for (int i = 0; i < 6; ++i) {
    processes.emplace_back([&, i] {
      const int machine = i / 2;
      const auto start = Real::now();
      found[static_cast<size_t>(i)] = {
          machine, OffsetToFirstMachine({.machine = machine, .machines = 3, .local_rank = i % 2}, &store,
                                        deadline, [&] {
                                          return nanoseconds(Real::now().time_since_epoch()) +
                                                 ahead[static_cast<size_t>(machine)];
                                        })};
      const int64_t mine = nanoseconds(Real::now() - start).count();
      for (int64_t most = took; mine > most && !took.compare_exchange_weak(most, mine);) {
      }
    });
  }
  for (std::thread& process : processes) process.join();
  for (const Found& each : found) {
    ASSERT_TRUE(each.offset.ok()) << each.offset.status().message();
    const auto error = *each.offset + ahead[static_cast<size_t>(each.machine)];
    EXPECT_LE(std::abs(error.count()), took) << "machine " << each.machine;
  }
  EXPECT_EQ(*found[2].offset, *found[3].offset);
}

TEST(SharedClockTest, AMachineThatIsNotThereIsNamed) {
  lockstep::testing::InMemoryStore store;
  const auto offset = OffsetToFirstMachine({.machine = 0, .machines = 2}, &store,
                                           std::chrono::steady_clock::now() + std::chrono::milliseconds(5));
  ASSERT_FALSE(offset.ok());
  EXPECT_NE(offset.status().message().find("trace/asks/1"), std::string::npos) << offset.status().message();
}

}  // namespace
}  // namespace lockstep::trainer::trace
