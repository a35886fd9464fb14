#include "trainer/parameter_server/pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::trainer::parameter_server {
namespace {

TEST(PoolTest, WhatHasComeBackIsTakenAgainAndNothingElse) {
  Pool<int> pool;
  int made = 0;
  const auto make = [&made] { return std::make_unique<int>(++made); };
  std::shared_ptr<int> first = pool.Take(make);
  const std::shared_ptr<int> second = pool.Take(make);
  EXPECT_EQ(made, 2);
  std::shared_ptr<int> reader = first;
  first.reset();
  EXPECT_EQ(*pool.Take(make), 3) << "it is still being read";
  reader.reset();
  first = pool.Take(make);
  EXPECT_EQ(*first, 1);
  EXPECT_EQ(made, 3);
}

TEST(PoolTest, WhatIsOutMayOutliveThePool) {
  std::shared_ptr<int> out;
  {
    Pool<int> pool;
    out = pool.Take([] { return std::make_unique<int>(7); });
  }
  EXPECT_EQ(*out, 7);
}

// For the thread sanitizer: a reader's last look comes before the next writing.
TEST(PoolTest, ReadersInOtherThreadsAreDoneBeforeItIsTakenAgain) {
  Pool<int> pool;
  std::vector<std::thread> readers;
  for (int i = 0; i < 200; ++i) {
    std::shared_ptr<int> object = pool.Take([] { return std::make_unique<int>(); });
    *object = i;
    readers.emplace_back([read = std::move(object), i]() mutable {
      EXPECT_EQ(*read, i);
      read.reset();
    });
  }
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace lockstep::trainer::parameter_server
