#include "trainer/strategy/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>

#include "tests/unit/collectives/fork_store.h"
#include "tests/unit/collectives/processes.h"
#include "tests/unit/strategy/promises.h"
#include "trainer/collectives/local/shared_segment.h"
#include "trainer/error.h"
#include "trainer/strategy/central.h"

namespace lockstep::trainer::strategy {
namespace {

using ::lockstep::testing::ExpectAKilledProcessEndsTheOthersWithinASecond;
using ::lockstep::testing::ExpectAllStopAfterTheSameStep;
using ::lockstep::testing::ExpectARankThatFailsEndsTheOthersSoon;
using ::lockstep::testing::ExpectARestoredStateGoesOn;
using ::lockstep::testing::ExpectCountsOfTheGlobalBatch;
using ::lockstep::testing::ExpectLossesNear;
using ::lockstep::testing::ExpectSameOnAllRanks;
using ::lockstep::testing::ExpectTheAverageIsReadWhereAsked;
using ::lockstep::testing::ForkStore;
using ::lockstep::testing::Job;
using ::lockstep::testing::JobRank;
using ::lockstep::testing::Meeting;
using ::lockstep::testing::Outcome;
using ::lockstep::testing::Processes;
using ::lockstep::testing::RunRanks;
using ::lockstep::testing::Train;
using ::lockstep::testing::WithMomentumAndPenalty;
using ::lockstep::testing::WithTheWholeRecipe;
using ::lockstep::testing::WithUnevenShares;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSteps = 100;

Job OneDeviceJob() { return {.kind = Kind::kOneDevice}; }

struct Case {
  std::string name;
  Job job;
};

// Each way of being several; `share` is set by the tests.
std::vector<Case> Cases() {
  const Kind multi = Kind::kMultiWorkerMirrored;
  return {{"Mirrored1", {.local_size = 1}},
          {"Mirrored2", {.local_size = 2}},
          {"Mirrored4", {.local_size = 4}},
          {"CentralStorage2", {.local_size = 2, .kind = Kind::kCentralStorage}},
          {"CentralStorage4", {.local_size = 4, .kind = Kind::kCentralStorage}},
          {"ReductionToOneDevice3", {.local_size = 3, .ops = CrossDeviceOps::kReductionToOneDevice}},
          {"HierarchicalCopy3", {.local_size = 3, .ops = CrossDeviceOps::kHierarchicalCopy}},
          {"HierarchicalCopy4", {.local_size = 4, .ops = CrossDeviceOps::kHierarchicalCopy}},
          {"Gloo2", {.local_size = 2, .ops = CrossDeviceOps::kGloo}},
          {"Gloo4", {.local_size = 4, .ops = CrossDeviceOps::kGloo}},
          {"ShardedOptimizer4", {.local_size = 4, .ops = CrossDeviceOps::kGloo, .shard = Shard::kOptimizer}},
          {"ShardedGradients3", {.local_size = 3, .shard = Shard::kGradients}},
          {"ShardedTwoMachinesOfTwo",
           {.machines = 2, .local_size = 2, .kind = multi, .shard = Shard::kGradients}},
          {"CopiedOptimizer4",
           {.local_size = 4, .ops = CrossDeviceOps::kGloo, .shard = Shard::kOptimizer, .copy_shards = true}},
          {"CopiedTwoMachinesOfTwo",
           {.machines = 2, .local_size = 2, .kind = multi, .shard = Shard::kGradients, .copy_shards = true}},
          {"TwoMachines", {.machines = 2, .kind = multi}},
          {"TwoMachinesOfTwo", {.machines = 2, .local_size = 2, .kind = multi}},
          {"TwoMachinesOfThree", {.machines = 2, .local_size = 3, .kind = multi}},
          {"ThreeMachinesOfOne", {.machines = 3, .kind = multi}}};
}

class StrategyTest : public ::testing::TestWithParam<Case> {};

TEST_P(StrategyTest, GivesTheLossesOfOneDevice) {
  Job job = GetParam().job;
  const Outcome outcome = Train(job, kSteps);
  ExpectSameOnAllRanks(outcome);
  const Outcome reference = Train(OneDeviceJob(), kSteps);
  ASSERT_THAT(reference.thrown, Each(IsEmpty()));
  ExpectLossesNear(outcome, reference, 1e-5);
  EXPECT_LT(reference.losses[0].back(), reference.losses[0].front() / 4) << "the job is to learn something";
}

TEST_P(StrategyTest, UnevenSharesAndIdleRanksChangeNothing) {
  const Outcome outcome = Train(WithUnevenShares(GetParam().job), kSteps);
  ExpectSameOnAllRanks(outcome);
  ExpectLossesNear(outcome, Train(OneDeviceJob(), kSteps), 1e-5);
}

TEST_P(StrategyTest, TheSameSeedGivesTheSameBits) {
  const Job& job = GetParam().job;
  const Outcome first = Train(job, 30), second = Train(job, 30);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.parameters, second.parameters);
  EXPECT_EQ(first.slots, second.slots);
  Job other = job;
  other.seed = 2;
  EXPECT_NE(Train(other, 1).parameters, Train(job, 1).parameters);
}

TEST_P(StrategyTest, RegularisationAndMomentumAreTheSameToo) {
  const Outcome outcome = Train(WithMomentumAndPenalty(GetParam().job), 50);
  ExpectSameOnAllRanks(outcome);
  ExpectLossesNear(outcome, Train(WithMomentumAndPenalty(OneDeviceJob()), 50), 1e-5);
}

TEST_P(StrategyTest, TheAverageIsReadWhereAsked) { ExpectTheAverageIsReadWhereAsked(GetParam().job); }

// The norm that clips is of the whole job's gradient, and the same bits on all ranks.
TEST_P(StrategyTest, TheWholeRecipeIsTheSameToo) {
  const Outcome outcome = Train(WithTheWholeRecipe(WithUnevenShares(GetParam().job)), 50);
  ExpectSameOnAllRanks(outcome);
  const Outcome reference = Train(WithTheWholeRecipe(OneDeviceJob()), 50);
  ExpectLossesNear(outcome, reference, 1e-5);
  Job unclipped = WithTheWholeRecipe(OneDeviceJob());
  unclipped.optimizer.global_clip_norm = 0;
  EXPECT_NE(Train(unclipped, 50).parameters, reference.parameters) << "the norm is to have been clipped";
}

TEST_P(StrategyTest, ARestoredRecipeGoesOnBitForBit) {
  ExpectARestoredStateGoesOn(WithTheWholeRecipe(GetParam().job));
}

TEST_P(StrategyTest, BatchStatisticsAndDropoutAreThoseOfOneDevice) {
  Job job = GetParam().job, reference = OneDeviceJob();
  if (job.is_pipeline()) GTEST_SKIP() << "a pipeline refuses statistics over the replicas";
  for (Job* each : {&job, &reference}) each->normalised = true;
  const Outcome wanted = Train(reference, kSteps);
  EXPECT_LT(wanted.losses[0].back(), wanted.losses[0].front() / 2) << "the job is to learn something";
  for (const Job& each : {job, WithUnevenShares(job)}) {
    const Outcome outcome = Train(each, kSteps);
    ExpectSameOnAllRanks(outcome);
    ExpectLossesNear(outcome, wanted, 1e-5);
  }
}

TEST_P(StrategyTest, ASingleNumberToLearnIsEnough) {
  Job job = GetParam().job, reference = OneDeviceJob();
  for (Job* each : {&job, &reference}) each->widths = {1, 2};
  const Outcome outcome = Train(job, 20);
  ExpectSameOnAllRanks(outcome);
  ExpectLossesNear(outcome, Train(reference, 20), 1e-5);
}

TEST_P(StrategyTest, CountsAreThoseOfTheGlobalBatch) {
  ExpectCountsOfTheGlobalBatch(GetParam().job, OneDeviceJob());
}

TEST_P(StrategyTest, AllStopAfterTheSameStep) { ExpectAllStopAfterTheSameStep(GetParam().job); }

TEST_P(StrategyTest, ARestoredStateGoesOnBitForBit) {
  const Job& job = GetParam().job;
  const bool all_gloo =
      job.ops == CrossDeviceOps::kGloo || (job.shard == Shard::kGradients && job.machines == 1);
  EXPECT_EQ(ExpectARestoredStateGoesOn(job), all_gloo ? job.size() : job.machines);
}

TEST_P(StrategyTest, SumsAddUpOnEveryRank) {
  const Job job = GetParam().job;
  const int n = job.size();
  Train(job, 10, [&](JobRank& rank, const StepResult&) {
    for (int i = 1; i <= 3; ++i) {
      const Totals sum =
          rank.strategy().Sum({.loss_sum = 0.5 * rank.rank(), .correct = i, .samples = 10 + rank.rank()});
      EXPECT_DOUBLE_EQ(sum.loss_sum, 0.25 * n * (n - 1));
      EXPECT_EQ(sum.correct, i * n);
      EXPECT_EQ(sum.samples, 10 * n + n * (n - 1) / 2);
    }
  });
}

TEST_P(StrategyTest, RanksThatAreProcessesGiveTheSameBits) {
  const Job job = GetParam().job;
  const Outcome threads = Train(job, 20);
  ForkStore store;
  const size_t bytes = threads.parameters[0].size() * sizeof(float);
  const auto result = collectives::SharedSegment::Create("result", bytes * static_cast<size_t>(job.size()));
  {
    Processes processes(0, job.size(), [&](int r) {
      JobRank rank(job, store, nullptr, r);
      rank.Setup();
      for (int64_t step = 0; step < 20; ++step) rank.Step(step);
      rank.model().ExportCanonical(rank.strategy().parameters().data(),
                                   result.View<float>(bytes * static_cast<size_t>(r), bytes / sizeof(float)));
      rank.strategy().Finish();
    });
    for (int r = 0; r < job.size(); ++r) EXPECT_EQ(processes.Wait(static_cast<size_t>(r)), 0);
  }
  for (int r = 0; r < job.size(); ++r) {
    const auto parameters = result.View<float>(bytes * static_cast<size_t>(r), bytes / sizeof(float));
    EXPECT_TRUE(std::equal(parameters.begin(), parameters.end(), threads.parameters[0].begin())) << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, StrategyTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

class BrokenStrategyTest : public ::testing::TestWithParam<Case> {};

TEST_P(BrokenStrategyTest, ARankThatFailsEndsTheOthersSoon) {
  ExpectARankThatFailsEndsTheOthersSoon(GetParam().job);
}

TEST_P(BrokenStrategyTest, ARankThatFailsWithinAStepEndsTheOthersSoon) {
  const Job job = GetParam().job;
  Meeting meeting;
  const auto thrown = RunRanks(job.size(), [&](int r) {
    JobRank rank(job, meeting, r);
    rank.Setup();
    rank.Step(0);
    if (r != 1) {
      rank.Step(1);
      return;
    }
    std::vector<float> inputs(static_cast<size_t>(job.widths[0]));
    const int32_t label = 1'000'000;
    rank.strategy().TrainStep(
        {.inputs = inputs.data(), .labels = &label, .local_samples = 1, .global_samples = job.global_batch});
  });
  // (A rank that had not left step 1 yet when this one failed in step 2 says step 1.)
  for (size_t r = 0; r < thrown.size(); ++r) {
    EXPECT_THAT(thrown[r], r == 1 ? HasSubstr("1000000") : HasSubstr("all-reduce")) << r;
  }
}

TEST_P(BrokenStrategyTest, ARankThatStaysAwayIsMissedAtTheDeadline) {
  Job job = GetParam().job;
  job.timeout = std::chrono::seconds(4);
  Meeting meeting;
  std::atomic<int> done = 0;
  const auto thrown = RunRanks(job.size(), [&](int r) {
    JobRank rank(job, meeting, r);
    rank.Setup();
    rank.Step(0);
    if (r == 1) {
      while (done.load() < job.size() - 1) std::this_thread::yield();
      return;
    }
    try {
      rank.Step(1);
    } catch (const CollectiveLost&) {
      done.fetch_add(1);
      throw;
    }
  });
  for (size_t r = 0; r < thrown.size(); ++r) {
    EXPECT_THAT(thrown[r], r == 1 ? HasSubstr("") : HasSubstr("step 2: all-reduce")) << r;
  }
}

TEST_P(BrokenStrategyTest, AKilledProcessEndsTheOthersWithinASecond) {
  ExpectAKilledProcessEndsTheOthersWithinASecond(GetParam().job);
}

TEST_P(BrokenStrategyTest, DifferentModelsAreFoundAtSetup) {
  const Job job = GetParam().job;
  Meeting meeting;
  const auto thrown = RunRanks(job.size(), [&](int r) {
    Job mine = job;
    if (r == 1) mine.widths[1] += 1;
    JobRank rank(mine, meeting, r);
    EXPECT_THROW(rank.Setup(), BadModel);
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

TEST_P(BrokenStrategyTest, DifferentSeedsAreFoundAtSetupWhereParametersAreNotShared) {
  const Job job = GetParam().job;
  if (job.kind == Kind::kMirrored && job.ops == CrossDeviceOps::kAuto) GTEST_SKIP() << "one copy, one seed";
  Meeting meeting;
  std::atomic<int> bad_model = 0;
  RunRanks(job.size(), [&](int r) {
    Job mine = job;
    mine.seed += static_cast<uint64_t>(r / job.local_size + (job.machines == 1 ? r : 0));
    JobRank rank(mine, meeting, r);
    try {
      rank.Setup();
    } catch (const BadModel&) {
      bad_model.fetch_add(1);
    }
  });
  EXPECT_EQ(bad_model.load(), job.size());
}

INSTANTIATE_TEST_SUITE_P(
    Ways, BrokenStrategyTest,
    ::testing::Values(Case{"Mirrored2", {.local_size = 2}}, Case{"Mirrored4", {.local_size = 4}},
                      Case{"Gloo2", {.local_size = 2, .ops = CrossDeviceOps::kGloo}},
                      Case{"TwoMachinesOfTwo",
                           {.machines = 2, .local_size = 2, .kind = Kind::kMultiWorkerMirrored}}),
    [](const auto& info) { return info.param.name; });

std::string Refusal(const Options& options) {
  try {
    MakeStrategy(options);
  } catch (const Unsupported& error) {
    return error.what();
  }
  return "accepted";
}

TEST(MakeStrategyTest, RefusesWhatContradictsItself) {
  lockstep::testing::InMemoryStore store;
  const World two{.size = 2, .local_size = 2}, two_machines{.size = 2, .group_size = 2};
  EXPECT_THAT(Refusal({.kind = Kind::kOneDevice, .world = two, .store = &store}),
              HasSubstr("Mirrored would be right"));
  EXPECT_THAT(Refusal({.kind = Kind::kMirrored, .world = two_machines, .store = &store}),
              HasSubstr("MultiWorkerMirrored would be right"));
  EXPECT_THAT(Refusal({.kind = Kind::kMultiWorkerMirrored,
                       .ops = CrossDeviceOps::kSharedMemory,
                       .world = two_machines,
                       .store = &store}),
              HasSubstr("SharedMemory is for one machine"));
  EXPECT_THAT(Refusal({.world = {.size = 3, .local_size = 2}, .store = &store}), HasSubstr("world of 3"));
  EXPECT_THAT(Refusal({.world = {.rank = 1, .size = 2, .local_size = 2}, .store = &store}),
              HasSubstr("rank 1"));
  EXPECT_THAT(Refusal({.world = two}), HasSubstr("store"));
  EXPECT_THAT(Refusal({.ops = CrossDeviceOps::kNccl, .world = two, .store = &store}),
              HasSubstr("NCCL sums on GPUs"));
  EXPECT_EQ(Refusal({.ops = CrossDeviceOps::kNccl, .world = two, .store = &store, .soft_placement = true}),
            "accepted");
  EXPECT_THAT(Refusal({.kind = Kind::kCentralStorage, .world = two_machines, .store = &store}),
              HasSubstr("ParameterServer would be right"));
  EXPECT_THAT(
      Refusal({.kind = Kind::kCentralStorage, .ops = CrossDeviceOps::kGloo, .world = two, .store = &store}),
      HasSubstr("is for mirrored variables"));
  for (const CrossDeviceOps ops :
       {CrossDeviceOps::kHierarchicalCopy, CrossDeviceOps::kReductionToOneDevice}) {
    EXPECT_EQ(Refusal({.ops = ops, .world = two, .store = &store}), "accepted");
    EXPECT_THAT(
        Refusal({.kind = Kind::kMultiWorkerMirrored, .ops = ops, .world = two_machines, .store = &store}),
        HasSubstr("is for one machine"));
  }
  EXPECT_THAT(
      Refusal(
          {.ops = CrossDeviceOps::kSharedMemory, .shard = Shard::kGradients, .world = two, .store = &store}),
      HasSubstr("Auto or Gloo would be right"));
  EXPECT_EQ(Refusal({.world = two, .store = &store}), "accepted");
  EXPECT_EQ(Refusal({.kind = Kind::kMultiWorkerMirrored, .world = two, .store = &store}), "accepted");
}

// What the ranks of a job hold of memory that is shared, each as a process, after its steps.
std::vector<int64_t> SharedBytes(const Job& job) {
  ForkStore store;
  const auto result =
      collectives::SharedSegment::Create("result", sizeof(int64_t) * static_cast<size_t>(job.size()));
  const auto bytes = result.View<int64_t>(0, static_cast<size_t>(job.size()));
  Processes processes(0, job.size(), [&](int r) {
    JobRank rank(job, store, nullptr, r);
    rank.Setup();
    for (int64_t step = 0; step < 3; ++step) rank.Step(step);
    rank.strategy().CollectSlots();
    rank.Step(3);
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("RssShmem:")) bytes[static_cast<size_t>(r)] = std::stoll(line.substr(9)) * 1024;
    }
    rank.strategy().Finish();
  });
  for (int r = 0; r < job.size(); ++r) EXPECT_EQ(processes.Wait(static_cast<size_t>(r)), 0);
  return {bytes.begin(), bytes.end()};
}

TEST(ShardTest, ARankHoldsItsShareOfTheOptimizersStateAndOfTheGradients) {
  constexpr int kRanks = 4;
  Job job{.local_size = kRanks, .ops = CrossDeviceOps::kGloo};
  job.widths = {500, 1000, 1000, 10};
  const double parameters = 4.0 * (500 * 1000 + 1000 * 1000 + 1000 * 10 + 2010);
  const std::vector<int64_t> whole = SharedBytes(job);
  job.shard = Shard::kOptimizer;
  const std::vector<int64_t> optimizer = SharedBytes(job);
  job.shard = Shard::kGradients;
  const std::vector<int64_t> gradients = SharedBytes(job);
  job.copy_shards = true;
  const std::vector<int64_t> copied = SharedBytes(job);
  for (size_t r = 0; r < kRanks; ++r) {
    // Of Adam's two slots a quarter, and pages at the borders.
    EXPECT_NEAR(static_cast<double>(whole[r] - optimizer[r]) / parameters, 2 * 0.75, 0.1) << r;
    EXPECT_NEAR(static_cast<double>(optimizer[r] - gradients[r]) / parameters, 1, 0.1) << r;
    // The neighbour's quarter of the slots.
    EXPECT_NEAR(static_cast<double>(copied[r] - gradients[r]) / parameters, 2 * 0.25, 0.1) << r;
  }
}

TEST(ShardTest, GivesTheBitsOfTheWhole) {
  Job job{.local_size = 3, .ops = CrossDeviceOps::kGloo};
  const Outcome whole = Train(job, 20);
  for (const Shard shard : {Shard::kOptimizer, Shard::kGradients}) {
    for (const bool copies : {false, true}) {
      job.shard = shard;
      job.copy_shards = copies;
      const Outcome sharded = Train(job, 20);
      EXPECT_EQ(sharded.losses, whole.losses);
      EXPECT_EQ(sharded.parameters, whole.parameters);
      EXPECT_EQ(sharded.slots[0], whole.slots[0]);
    }
  }
}

TEST(CentralTest, ATreeReachesEveryRankOnce) {
  EXPECT_THAT(Central::ChildrenOf(0, 5, false), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Central::ChildrenOf(2, 5, false), IsEmpty());
  EXPECT_THAT(Central::ChildrenOf(0, 8, true), ElementsAre(1, 2, 4));
  EXPECT_THAT(Central::ChildrenOf(4, 8, true), ElementsAre(5, 6));
  EXPECT_THAT(Central::ChildrenOf(4, 6, true), ElementsAre(5));
  for (int size = 1; size <= 17; ++size) {
    std::vector<int> parents(static_cast<size_t>(size), 0);
    for (int r = 0; r < size; ++r) {
      for (const int child : Central::ChildrenOf(r, size, true)) {
        ASSERT_GT(child, r);
        parents[static_cast<size_t>(child)] += 1;
      }
    }
    EXPECT_EQ(parents[0], 0);
    EXPECT_EQ(std::count(parents.begin(), parents.end(), 1), size - 1) << size;
  }
}

}  // namespace
}  // namespace lockstep::trainer::strategy
