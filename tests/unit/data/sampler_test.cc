#include "trainer/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <vector>

#include "trainer/error.h"

namespace lockstep::trainer::data {
namespace {

using ::testing::ElementsAre;

std::vector<uint32_t> Copy(std::span<const uint32_t> indices) { return {indices.begin(), indices.end()}; }

// The epoch's samples in the order of batches, and within a batch of ranks.
std::vector<uint32_t> Epoch(Sampler& sampler, int64_t epoch, int64_t world,
                            std::vector<int64_t>* batch_sizes) {
  std::vector<uint32_t> all;
  for (Position at{epoch, 0}; at.epoch == epoch; at = sampler.Next(at)) {
    const size_t before = all.size();
    for (int64_t rank = 0; rank < world; ++rank) {
      const auto shard = Copy(sampler.Shard(at, rank, world));
      all.insert(all.end(), shard.begin(), shard.end());
    }
    batch_sizes->push_back(static_cast<int64_t>(all.size() - before));
  }
  return all;
}

TEST(ShardOfTest, GivesTheFirstRanksOneMore) {
  EXPECT_EQ(ShardOf({100, 10}, 0, 4), (Range{100, 3}));
  EXPECT_EQ(ShardOf({100, 10}, 1, 4), (Range{103, 3}));
  EXPECT_EQ(ShardOf({100, 10}, 2, 4), (Range{106, 2}));
  EXPECT_EQ(ShardOf({100, 10}, 3, 4), (Range{108, 2}));
}

TEST(ShardOfTest, LeavesRanksWithoutSamplesWhenThereAreFewerThanRanks) {
  EXPECT_EQ(ShardOf({7, 2}, 1, 4), (Range{8, 1}));
  EXPECT_EQ(ShardOf({7, 2}, 2, 4).count, 0);
  EXPECT_EQ(ShardOf({7, 2}, 3, 4).count, 0);
}

TEST(SamplerTest, TakesEverySampleOnceAnEpochInTheSameBatchesWhateverTheWorldsSize) {
  for (const int64_t samples : {1, 2, 7, 80, 400, 1000, 1023}) {
    for (const int64_t batch : {1, 3, 64, 80, 2000}) {
      std::vector<uint32_t> of_one_rank;
      for (const int64_t world : {1, 2, 3, 4, 7, 16}) {
        Sampler sampler({.samples = samples, .batch_size = batch, .seed = 5});
        std::vector<int64_t> sizes;
        const std::vector<uint32_t> all = Epoch(sampler, 3, world, &sizes);
        if (world == 1) of_one_rank = all;
        ASSERT_EQ(all, of_one_rank) << samples << " samples, batch " << batch << ", world " << world;
        ASSERT_EQ(static_cast<int64_t>(sizes.size()), sampler.batches_per_epoch());
        ASSERT_TRUE(std::all_of(sizes.begin(), sizes.end() - 1, [&](int64_t size) { return size == batch; }));

        std::vector<uint32_t> sorted = all, expected(samples);
        std::sort(sorted.begin(), sorted.end());
        std::iota(expected.begin(), expected.end(), 0u);
        ASSERT_EQ(sorted, expected) << samples << " samples, batch " << batch << ", world " << world;
      }
    }
  }
}

TEST(SamplerTest, MakesTheLastBatchSmaller) {
  Sampler sampler({.samples = 50'000, .batch_size = 256, .seed = 1});
  EXPECT_EQ(sampler.batches_per_epoch(), 196);
  const Position last{0, 195 * 256};
  EXPECT_EQ(sampler.BatchAt(last), (Range{195 * 256, 80}));
  EXPECT_EQ(sampler.Next(last), (Position{1, 0}));
  EXPECT_EQ(sampler.Shard(last, 0, 3).size(), 27u);
  EXPECT_EQ(sampler.Shard(last, 2, 3).size(), 26u);
}

TEST(SamplerTest, KeysTheOrderByTheSeedAndTheEpochAlone) {
  const Sampler::Options options{.samples = 1000, .batch_size = 10, .seed = 1};
  Sampler one(options), same(options), other({.samples = 1000, .batch_size = 10, .seed = 2});
  const auto first = Copy(one.Order(0)), second = Copy(one.Order(1));
  EXPECT_NE(first, second);
  EXPECT_NE(Copy(other.Order(0)), first);
  // Another sampler that comes at it another way, and with another batch.
  same.Order(7);
  EXPECT_EQ(Copy(same.Order(1)), second);
  Sampler larger({.samples = 1000, .batch_size = 999, .seed = 1});
  EXPECT_EQ(Copy(larger.Order(0)), first);
}

TEST(SamplerTest, HasTheSameOrderOnEveryMachine) {
  Sampler sampler({.samples = 10, .batch_size = 10, .seed = 1});
  EXPECT_THAT(sampler.Order(0), ElementsAre(8, 6, 3, 1, 2, 4, 0, 5, 9, 7));
  EXPECT_THAT(sampler.Order(1), ElementsAre(7, 9, 5, 3, 2, 1, 0, 6, 8, 4));
}

TEST(SamplerTest, PutsEverySampleEverywhereEquallyOften) {
  constexpr int kSamples = 8, kEpochs = 8000;
  Sampler sampler({.samples = kSamples, .batch_size = 1, .seed = 3});
  std::array<std::array<int, kSamples>, kSamples> seen{};
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto order = sampler.Order(epoch);
    for (int place = 0; place < kSamples; ++place) ++seen[order[place]][place];
  }
  // 1000 expected, with a standard deviation of 30.
  for (const auto& places : seen) {
    for (const int count : places) EXPECT_NEAR(count, kEpochs / kSamples, 150);
  }
}

TEST(SamplerTest, KeepsTheOrderOfTheDataWhenItIsNotToShuffle) {
  Sampler sampler({.samples = 5, .batch_size = 2, .seed = 3, .shuffle = false});
  EXPECT_THAT(sampler.Order(4), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(sampler.Shard({4, 2}, 1, 2), ElementsAre(3));
}

TEST(SamplerTest, GoesOnInTheMiddleOfAnEpochWithAnotherBatchSize) {
  Sampler before({.samples = 100, .batch_size = 10, .seed = 9});
  Sampler after({.samples = 100, .batch_size = 30, .seed = 9});
  Position at{2, 0};
  std::vector<uint32_t> taken;
  for (int i = 0; i < 4; ++i, at = before.Next(at)) {
    const auto batch = before.Shard(at, 0, 1);
    taken.insert(taken.end(), batch.begin(), batch.end());
  }
  for (; at.epoch == 2; at = after.Next(at)) {
    const auto batch = after.Shard(at, 0, 1);
    taken.insert(taken.end(), batch.begin(), batch.end());
  }
  EXPECT_EQ(taken, Copy(before.Order(2)));
}

TEST(SamplerTest, RefusesNonsense) {
  EXPECT_THROW(Sampler({.samples = 0, .batch_size = 1}), BadData);
  EXPECT_THROW(Sampler({.samples = int64_t{1} << 32, .batch_size = 1}), BadData);
  EXPECT_THROW(Sampler({.samples = 5, .batch_size = 0}), BadData);
  const Sampler sampler({.samples = 5, .batch_size = 2});
  EXPECT_THROW(sampler.BatchAt({0, 5}), BadData);
  EXPECT_THROW(sampler.BatchAt({0, -1}), BadData);
  EXPECT_THROW(sampler.BatchAt({-1, 0}), BadData);
  const Sampler large({.samples = 5, .batch_size = std::numeric_limits<int64_t>::max()});
  EXPECT_EQ(large.batches_per_epoch(), 1);
}

}  // namespace
}  // namespace lockstep::trainer::data
