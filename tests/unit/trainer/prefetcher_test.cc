#include "trainer/prefetcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lockstep::trainer {
namespace {

constexpr int64_t kBatches = 10;  // an epoch

data::Position NextOf(data::Position at) {
  return at.offset + 1 == kBatches ? data::Position{at.epoch + 1, 0}
                                   : data::Position{at.epoch, at.offset + 1};
}

// Slots that hold their batch's number, and how many were prepared so far.
struct Slots {
  explicit Slots(size_t count, int64_t epochs = 3)
      : values(count, -1), options{.slots = count, .epochs = epochs} {
    options.prepare = [this](data::Position at, size_t slot) {
      if (at == bad) throw std::runtime_error("a torn page");
      values[slot] = at.epoch * kBatches + at.offset;
      prepared.fetch_add(1);
      prepared.notify_all();
    };
    options.next = NextOf;
  }
  std::vector<int64_t> values;
  std::atomic<int64_t> prepared = 0;
  data::Position bad{-1, 0};
  Prefetcher::Options options;
};

TEST(PrefetcherTest, GivesEveryBatchInOrder) {
  Slots slots(3);
  Prefetcher prefetcher(slots.options);
  int64_t wanted = 0;
  for (data::Position at; at.epoch < 3; at = NextOf(at), ++wanted) {
    const size_t slot = prefetcher.Take(at);
    ASSERT_EQ(slots.values[slot], wanted);
    std::this_thread::yield();
    ASSERT_EQ(slots.values[slot], wanted) << "it is the caller's until the next Take";
  }
  EXPECT_EQ(slots.prepared, 3 * kBatches) << "none past the last epoch";
}

TEST(PrefetcherTest, PreparesAheadButNotPastItsSlots) {
  Slots slots(4);
  {
    Prefetcher prefetcher(slots.options);
    prefetcher.Take({0, 0});
    for (int64_t done = slots.prepared; done < 4; done = slots.prepared) slots.prepared.wait(done);
    EXPECT_EQ(slots.values[0], 0);
  }
  EXPECT_EQ(slots.prepared, 4);
}

TEST(PrefetcherTest, BeginsAnewWhereverItIsAsked) {
  Slots slots(3);
  Prefetcher prefetcher(slots.options);
  EXPECT_EQ(slots.values[prefetcher.Take({0, 0})], 0);
  EXPECT_EQ(slots.values[prefetcher.Take({1, 5})], 15);
  EXPECT_EQ(slots.values[prefetcher.Take({1, 6})], 16);
  EXPECT_EQ(slots.values[prefetcher.Take({0, 2})], 2);
}

TEST(PrefetcherTest, AFailureComesOutWithItsBatchAndNotBefore) {
  Slots slots(3);
  slots.bad = {0, 2};
  Prefetcher prefetcher(slots.options);
  EXPECT_EQ(slots.values[prefetcher.Take({0, 0})], 0);
  EXPECT_EQ(slots.values[prefetcher.Take({0, 1})], 1);
  EXPECT_THROW(prefetcher.Take({0, 2}), std::runtime_error);
  EXPECT_EQ(slots.values[prefetcher.Take({0, 3})], 3);
}

TEST(PrefetcherTest, EndsWhileABatchIsBeingPrepared) {
  for (int i = 0; i < 50; ++i) {
    Slots slots(2 + static_cast<size_t>(i % 3));
    Prefetcher prefetcher(slots.options);
    if (i % 2 == 0) prefetcher.Take({0, i % kBatches});
  }
}

}  // namespace
}  // namespace lockstep::trainer
