#include "trainer/parameter_server/shard.h"

#include <gtest/gtest.h>

#include "trainer/backend/factory.h"

namespace lockstep::trainer::parameter_server {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kEra = 5;
constexpr int64_t kFloats = 48;

class ShardTest : public ::testing::Test {
 protected:
  ShardTest() { Load(kEra, 0, 1.0f); }

  void Load(int64_t era, int64_t version, float value) {
    shard_.Load(era, version, std::vector<float>(kFloats, value), {});
  }
  bool Stage(int64_t lease, float value, int64_t worker = 0, int64_t era = kEra) {
    Buffer room = shard_.Room(era, Soon());
    if (room.data() == nullptr) return false;
    std::fill_n(room.as<float>(), kFloats, value);
    return shard_.Stage(era, worker, lease, std::move(room), true);
  }
  float First(const Shard::Reading& reading) { return reading.copy->values.as<float>()[0]; }
  static Deadline Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }
  static Deadline Now() { return std::chrono::steady_clock::now(); }

  std::unique_ptr<Backend> backend_ = MakeBackend({.threads = 1});
  std::unique_ptr<Optimizer> optimizer_ = MakeOptimizer({.learning_rate = 1}, *backend_);
  Shard shard_{{.floats = kFloats, .most_staged = 3}, *optimizer_};
};

TEST_F(ShardTest, AnUpdateIsTheSumOfItsGradients) {
  EXPECT_TRUE(Stage(1, 0.25f));
  EXPECT_TRUE(Stage(2, 0.5f, 1));
  const std::vector<int64_t> leases = {2, 1};
  EXPECT_TRUE(shard_.Apply(1, leases));
  EXPECT_EQ(First(shard_.Read({.era = kEra, .least_version = 1}, Soon())), 0.25f);
  EXPECT_EQ(shard_.staged(), 0u);
}

TEST_F(ShardTest, WhoReadsAVersionKeepsItWhateverComesAfter) {
  const Shard::Reading before = shard_.Read({.era = kEra}, Soon());
  for (int64_t version = 1; version <= 5; ++version) {
    EXPECT_TRUE(Stage(version, 1));
    EXPECT_TRUE(shard_.Apply(version, std::vector<int64_t>{version}));
    EXPECT_EQ(First(shard_.Read({.era = kEra, .least_version = version}, Soon())),
              1.0f - static_cast<float>(version));
  }
  EXPECT_EQ(First(before), 1.0f);
  EXPECT_EQ(before.copy->version, 0);
}

TEST_F(ShardTest, WhatSomebodyHasIsNotSentAgain) {
  EXPECT_EQ(shard_.Read({.era = kEra, .have_version = 0}, Soon()).result, Pulled::kUnchanged);
  EXPECT_EQ(shard_.Read({.era = kEra, .have_version = -1}, Soon()).result, Pulled::kHere);
}

TEST_F(ShardTest, AnotherErasQuestionsAreVoid) {
  EXPECT_EQ(shard_.Read({.era = 4}, Soon()).result, Pulled::kVoid);
  EXPECT_FALSE(Stage(1, 1, 0, 4));
  shard_.Void();
  EXPECT_EQ(shard_.Read({.era = kEra}, Soon()).result, Pulled::kVoid);
  EXPECT_EQ(shard_.Read({.era = 0}, Soon()).result, Pulled::kVoid);
  Load(6, 0, 9);
  EXPECT_EQ(First(shard_.Read({.era = 6}, Soon())), 9.0f);
}

TEST_F(ShardTest, ANewEraHasNothingOfTheOneBefore) {
  EXPECT_EQ(First(shard_.Read({.era = kEra}, Soon())), 1.0f);
  EXPECT_TRUE(Stage(1, 1));
  Load(6, 0, 2);
  EXPECT_FALSE(shard_.Apply(1, std::vector<int64_t>{1}));
  EXPECT_EQ(First(shard_.Read({.era = 6}, Soon())), 2.0f);
}

TEST_F(ShardTest, AVoidLeaseIsNotKeptWheneverItComes) {
  EXPECT_TRUE(Stage(1, 1));
  shard_.Drop(0, 1);
  EXPECT_FALSE(shard_.Holds(1));
  EXPECT_FALSE(Stage(1, 1));
  shard_.Drop(0, 3);
  EXPECT_FALSE(Stage(2, 1)) << "an older one of the same worker";
  EXPECT_TRUE(Stage(2, 1, 1)) << "another worker's";
  EXPECT_TRUE(Stage(4, 1));
}

TEST_F(ShardTest, GradientsWaitForRoomAndOnlyForRoom) {
  for (int64_t lease = 1; lease <= 3; ++lease) EXPECT_TRUE(Stage(lease, 1));
  EXPECT_EQ(shard_.Room(kEra, Now()).data(), nullptr);
  shard_.Drop(0, 2);
  Buffer room = shard_.Room(kEra, Now());
  EXPECT_NE(room.data(), nullptr);
  EXPECT_EQ(shard_.Room(kEra, Now()).data(), nullptr) << "the one that is coming counts";
  EXPECT_FALSE(shard_.Stage(kEra, 0, 9, std::move(room), false));
  EXPECT_NE(shard_.Room(kEra, Now()).data(), nullptr) << "it did not come";
}

TEST_F(ShardTest, AReaderOfWhatIsNotThereYetIsToldSoInTime) {
  EXPECT_EQ(shard_.Read({.era = kEra, .least_version = 1}, Now() + milliseconds(1)).result, Pulled::kVoid);
}

}  // namespace
}  // namespace lockstep::trainer::parameter_server
