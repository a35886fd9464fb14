#include "trainer/strategy/shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/strategy/job.h"

namespace lockstep::trainer::strategy {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::Job;
using testing::JobRank;
using testing::Meeting;

const std::vector<NamedShape> kVariables = {
    {"a", {40, 3}}, {"b", {3}}, {"c", {7, 7}}, {"d", {100}}, {"e", {1}}};

TEST(SharesTest, EachVariableIsOnesAndEachHasAboutAsMuch) {
  const std::vector<Share> shares = DivideEvenly(kVariables, {{"mean", {5}}, {"variance", {5}}}, 3);
  ASSERT_EQ(shares.size(), 3u);
  EXPECT_THAT(shares[0].variables, ElementsAre(0));
  EXPECT_THAT(shares[1].variables, ElementsAre(3));
  EXPECT_THAT(shares[2].variables, ElementsAre(1, 2, 4));
  EXPECT_THAT(shares[0].state, ElementsAre(0, 1));
  EXPECT_THAT(shares[1].state, IsEmpty());
  EXPECT_EQ(FloatsOf(kVariables, shares[2].variables), 53u);
}

TEST(SharesTest, AreNoMoreThanThereAreVariables) {
  EXPECT_EQ(DivideEvenly(kVariables, {}, 8).size(), 5u);
  EXPECT_EQ(DivideEvenly(kVariables, {}, 0).size(), 1u);
  EXPECT_EQ(DivideEvenly({}, {{"mean", {5}}}, 2).size(), 1u);
}

TEST(SharesTest, KnowWhoBringsSomething) {
  Shares shares{.by_rank = {{.variables = {0}, .state = {}}, {}, {.variables = {1}, .state = {}}}};
  EXPECT_THAT(shares.ranks(), ElementsAre(0, 2));
  EXPECT_TRUE(shares.brings());
  shares.rank = 1;
  EXPECT_FALSE(shares.brings());
  shares.rank = 3;
  EXPECT_FALSE(shares.brings());
}

// What the ranks of a job bring, put together, is what rank 0 brings alone.
void ExpectSharesMakeTheWhole(const Job& job, int ranks, size_t bringers) {
  WholeState whole, together;
  std::vector<WholeState> brought(static_cast<size_t>(job.size()));
  std::vector<Shares> shares(static_cast<size_t>(job.size()));
  Meeting meeting;
  const auto thrown = testing::RunRanks(job.size(), [&](int r) {
    JobRank rank(job, meeting, r);
    rank.Setup();
    for (int64_t step = 0; step < 3; ++step) rank.Step(step);
    const auto i = static_cast<size_t>(r);
    const auto slots = static_cast<size_t>(rank.optimizer().slots());
    if (r == 0) whole.slots.resize(slots);
    rank.strategy().Export(rank.model(), rank.strategy().ShareOut(rank.model(), 1),
                           r == 0 ? &whole : nullptr);
    shares[i] = rank.strategy().ShareOut(rank.model(), ranks);
    brought[i].slots.resize(slots);
    rank.strategy().Export(rank.model(), shares[i], shares[i].brings() ? &brought[i] : nullptr);
    rank.Step(3);
    rank.strategy().Finish();
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
  EXPECT_EQ(shares[0].ranks().size(), bringers);

  JobRank alone({.kind = Kind::kOneDevice}, meeting, 0);
  const std::vector<NamedShape>& variables = alone.model().variables();
  together.slots.resize(whole.slots.size());
  for (size_t v = 0; v < variables.size(); ++v) {
    int owners = 0;
    for (const int r : shares[0].ranks()) {
      const auto i = static_cast<size_t>(r);
      ASSERT_EQ(shares[i].rank, r);
      const std::vector<size_t>& his = shares[i].mine().variables;
      const auto found = std::find(his.begin(), his.end(), v);
      if (found == his.end()) continue;
      ++owners;
      const size_t offset = FloatsOf(variables, {his.begin(), found}), size = FloatsOf(variables, {v});
      const auto append = [&](const std::vector<float>& from, std::vector<float>* to) {
        ASSERT_GE(from.size(), offset + size);
        const auto begin = from.begin() + static_cast<long>(offset);
        to->insert(to->end(), begin, begin + static_cast<long>(size));
      };
      append(brought[i].parameters, &together.parameters);
      for (size_t s = 0; s < together.slots.size(); ++s) append(brought[i].slots[s], &together.slots[s]);
    }
    EXPECT_EQ(owners, 1) << variables[v].name;
  }
  EXPECT_EQ(together.parameters, whole.parameters);
  EXPECT_EQ(together.slots, whole.slots);
}

TEST(SharesTest, OfEveryStrategyMakeTheWhole) {
  ExpectSharesMakeTheWhole({.kind = Kind::kOneDevice}, 4, 1);
  ExpectSharesMakeTheWhole({.local_size = 4}, 4, 4);
  ExpectSharesMakeTheWhole({.local_size = 4}, 2, 2);
  ExpectSharesMakeTheWhole({.machines = 2, .local_size = 2, .kind = Kind::kMultiWorkerMirrored}, 4, 4);
  // Who has the optimizer's state of all is the first machine.
  Job sharded{.machines = 2, .local_size = 2, .kind = Kind::kMultiWorkerMirrored, .shard = Shard::kOptimizer};
  ExpectSharesMakeTheWhole(sharded, 4, 2);
  sharded = {.local_size = 2, .ops = CrossDeviceOps::kGloo, .shard = Shard::kGradients};
  ExpectSharesMakeTheWhole(sharded, 2, 1);
}

TEST(SharesTest, OfAPipelineAreEachStagesOwn) {
  Job job{.local_size = 4, .kind = Kind::kPipeline, .pipeline = {.stages = {{0, 0}, {1, 2}}}};
  ExpectSharesMakeTheWhole(job, 4, 4);
  ExpectSharesMakeTheWhole(job, 2, 2);
  job.local_size = 2;
  ExpectSharesMakeTheWhole(job, 2, 2);
}

}  // namespace
}  // namespace lockstep::trainer::strategy
