#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/in_memory_store.h"
#include "tests/unit/rendezvous/rendezvous_testing.h"

// What common/contract/store.h promises, of each implementation.
namespace lockstep::rendezvous {
namespace {

using contract::Store;
using ::testing::HasSubstr;
using testing::In;
using testing::kPatience;
using testing::milliseconds;

// One store as its ranks see it.
class World {
 public:
  virtual ~World() = default;
  virtual Store& Rank(int rank) = 0;  // not called from several threads
  virtual void EndGeneration() = 0;
};

class InMemoryWorld : public World {
 public:
  explicit InMemoryWorld(int) {}
  Store& Rank(int) override { return store_; }
  void EndGeneration() override { store_.EndGeneration(); }

 private:
  lockstep::testing::InMemoryStore store_;
};

class ServedWorld : public World {
 public:
  explicit ServedWorld(int world_size) : ranks_(static_cast<size_t>(world_size)) {
    server_.Begin(0, world_size);
  }
  Store& Rank(int rank) override {
    auto& client = ranks_[static_cast<size_t>(rank)];
    if (client == nullptr) client = server_.Client(rank);
    return *client;
  }
  void EndGeneration() override {
    server_.On([](StoreServer& server) { server.EndGeneration("a test"); });
  }

 private:
  testing::ServerThread server_;
  std::vector<std::unique_ptr<contract::StoreClient>> ranks_;
};

template <typename T>
class StoreContractTest : public ::testing::Test {};
using Worlds = ::testing::Types<InMemoryWorld, ServedWorld>;
TYPED_TEST_SUITE(StoreContractTest, Worlds);

TYPED_TEST(StoreContractTest, GetsWhatAnotherRankHasSet) {
  TypeParam world(2);
  const std::string value("any\0bytes\xff", 10);
  ASSERT_TRUE(world.Rank(0).Set("key", value, In(kPatience)).ok());
  const Result<std::string> got = world.Rank(1).Get("key", In(kPatience));
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(*got, value);
  ASSERT_TRUE(world.Rank(1).Set("key", "", In(kPatience)).ok());
  EXPECT_EQ(*world.Rank(0).Get("key", In(kPatience)), "");
}

TYPED_TEST(StoreContractTest, GetWaitsForTheKey) {
  TypeParam world(2);
  Store& one = world.Rank(0);
  Store& other = world.Rank(1);
  Result<std::string> got = Internal("not asked");
  std::thread waiting([&] { got = one.Get("late", In(kPatience)); });
  EXPECT_TRUE(other.Set("late", "here", In(kPatience)).ok());
  waiting.join();
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(*got, "here");
}

TYPED_TEST(StoreContractTest, AddCountsOverAllRanks) {
  constexpr int kRanks = 4;
  constexpr int kTimes = 50;
  TypeParam world(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&store = world.Rank(rank)] {
      for (int i = 0; i < kTimes; ++i) EXPECT_TRUE(store.Add("sum", 2, In(kPatience)).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*world.Rank(0).Add("sum", -1, In(kPatience)), 2 * kRanks * kTimes - 1);
  EXPECT_EQ(*world.Rank(0).Get("sum", In(kPatience)), std::to_string(2 * kRanks * kTimes - 1));
}

TYPED_TEST(StoreContractTest, AddToWhatIsNoNumberIsAnError) {
  TypeParam world(1);
  ASSERT_TRUE(world.Rank(0).Set("word", "abc", In(kPatience)).ok());
  EXPECT_EQ(world.Rank(0).Add("word", 1, In(kPatience)).status().code(), StatusCode::kInvalidArgument);
}

TYPED_TEST(StoreContractTest, DeadlineIsKeptAndNamesTheMissingKeys) {
  TypeParam world(1);
  Store& store = world.Rank(0);
  ASSERT_TRUE(store.Set("there", "", In(kPatience)).ok());
  const auto deadline = In(testing::seconds(2));
  const Status status = store.Wait({"there", "gone", "lost"}, deadline);
  EXPECT_LT(testing::Clock::now(), deadline + testing::seconds(5));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("gone"));
  EXPECT_THAT(status.message(), HasSubstr("lost"));
  EXPECT_EQ(status.message().find("there"), std::string::npos);
  EXPECT_EQ(store.Get("gone", In(milliseconds(50))).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(store.Set("gone", "", In(kPatience)).ok()) << "a deadline does not end the store";
  EXPECT_TRUE(store.Get("gone", In(kPatience)).ok());
}

TYPED_TEST(StoreContractTest, EndOfTheGenerationFailsWhoWaitsAndWhoComesLater) {
  TypeParam world(2);
  Store& waiting_rank = world.Rank(0);
  Store& other_rank = world.Rank(1);
  Status waited;
  std::thread waiting([&] { waited = waiting_rank.Wait({"never"}, In(kPatience)); });
  ASSERT_TRUE(other_rank.Set("some", "", In(kPatience)).ok());
  world.EndGeneration();
  waiting.join();
  EXPECT_EQ(waited.code(), StatusCode::kAborted) << waited.ToString();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(other_rank.Set("some", "", In(kPatience)).code(), StatusCode::kAborted);
    EXPECT_EQ(other_rank.Get("some", In(kPatience)).status().code(), StatusCode::kAborted);
  }
}

TYPED_TEST(StoreContractTest, RefusesWhatIsOverTheLimits) {
  TypeParam world(1);
  Store& store = world.Rank(0);
  EXPECT_EQ(store.Set(std::string(1025, 'k'), "", In(kPatience)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store.Set("k", std::string((1 << 20) + 1, 'v'), In(kPatience)).code(),
            StatusCode::kInvalidArgument);
  const std::string largest(1 << 20, 'v');
  ASSERT_TRUE(store.Set("k", largest, In(kPatience)).ok());
  EXPECT_EQ(*store.Get("k", In(kPatience)), largest);
}

// A rendezvous as collectives do it: everyone publishes an address and waits for all.
TYPED_TEST(StoreContractTest, ManyRanksFindEachOther) {
  constexpr int kRanks = 16;
  TypeParam world(kRanks);
  std::vector<std::string> keys;
  for (int rank = 0; rank < kRanks; ++rank) keys.push_back("address/" + std::to_string(rank));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank, &store = world.Rank(rank)] {
      const std::string own = "host" + std::to_string(rank);
      EXPECT_TRUE(store.Set(keys[static_cast<size_t>(rank)], own, In(kPatience)).ok());
      const Status all = store.Wait(keys, In(kPatience));
      EXPECT_TRUE(all.ok()) << all.ToString();
      EXPECT_EQ(*store.Get(keys[static_cast<size_t>((rank + 1) % kRanks)], In(kPatience)),
                "host" + std::to_string((rank + 1) % kRanks));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Several threads of one rank share its store.
TYPED_TEST(StoreContractTest, LongWaitOfOneThreadDoesNotHoldUpAnother) {
  TypeParam world(1);
  Store& store = world.Rank(0);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&store, i] {
      // Each waits for what the next one sets.
      const Result<std::string> got = store.Get("link/" + std::to_string(i + 1), In(kPatience));
      EXPECT_TRUE(got.ok()) << got.status().ToString();
      EXPECT_TRUE(store.Set("link/" + std::to_string(i), "", In(kPatience)).ok());
    });
  }
  EXPECT_TRUE(store.Set("link/8", "", In(kPatience)).ok());
  EXPECT_TRUE(store.Get("link/0", In(kPatience)).ok());
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace lockstep::rendezvous
