#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <deque>

#include "tests/unit/strategy/device_job.h"
#include "tests/unit/strategy/promises.h"
#include "trainer/error.h"

// Ranks that are threads of the test, on the GPUs of a plugin.
namespace lockstep::trainer::strategy {
namespace {

using ::lockstep::testing::ExpectAllStopAfterTheSameStep;
using ::lockstep::testing::ExpectARestoredStateGoesOn;
using ::lockstep::testing::ExpectCountsOfTheGlobalBatch;
using ::lockstep::testing::ExpectLossesNear;
using ::lockstep::testing::ExpectSameOnAllRanks;
using ::lockstep::testing::ExpectTheAverageIsReadWhereAsked;
using ::lockstep::testing::GpuJob;
using ::lockstep::testing::Job;
using ::lockstep::testing::JobRank;
using ::lockstep::testing::Meeting;
using ::lockstep::testing::Outcome;
using ::lockstep::testing::RunRanks;
using ::lockstep::testing::Train;
using ::lockstep::testing::WhyNotSoMany;
using ::lockstep::testing::WithMomentumAndPenalty;
using ::lockstep::testing::WithTheWholeRecipe;
using ::lockstep::testing::WithUnevenShares;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSteps = 40;
constexpr double kNear = 1e-4;  // relative, of losses

Job OneProcessor() { return {.kind = Kind::kOneDevice}; }

struct Case {
  std::string name;
  Job job;
  int gpus;  // that the ranks of a machine are on, in turn
};

std::vector<Case> Cases() {
  const Kind multi = Kind::kMultiWorkerMirrored;
  return {{"Alone", {.kind = Kind::kOneDevice}, 1},
          {"HierarchicalCopy2", {.local_size = 2, .ops = CrossDeviceOps::kHierarchicalCopy}, 2},
          {"HierarchicalCopy3", {.local_size = 3, .ops = CrossDeviceOps::kHierarchicalCopy}, 3},
          {"ReductionToOneDevice3", {.local_size = 3, .ops = CrossDeviceOps::kReductionToOneDevice}, 3},
          {"Nccl2", {.local_size = 2, .ops = CrossDeviceOps::kNccl}, 2},
          {"Nccl4", {.local_size = 4}, 4},
          {"FourOnOneGpu", {.local_size = 4}, 1},
          {"FourOnTwoGpus", {.local_size = 4}, 2},
          {"NcclTwoOnOneGpu", {.local_size = 2, .ops = CrossDeviceOps::kNccl}, 1},
          {"TwoMachinesOfTwo", {.machines = 2, .local_size = 2, .kind = multi}, 4}};
}

Job On(const Case& given) { return GpuJob(given.job, given.gpus); }

void ExpectSame(const Outcome& a, const Outcome& b) {
  ExpectSameOnAllRanks(a);
  ExpectSameOnAllRanks(b);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.parameters, b.parameters);
  EXPECT_EQ(a.slots, b.slots);
}

class OnGpus : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNotSoMany(GetParam().gpus); !why.empty()) GTEST_SKIP() << why;
  }
};

class DeviceStrategyTest : public OnGpus {};

TEST_P(DeviceStrategyTest, GivesTheLossesOfOneProcessor) {
  const Outcome outcome = Train(On(GetParam()), kSteps);
  ExpectSameOnAllRanks(outcome);
  const Outcome reference = Train(OneProcessor(), kSteps);
  ExpectLossesNear(outcome, reference, kNear);
  EXPECT_LT(reference.losses[0].back(), reference.losses[0].front() / 2) << "the job is to learn something";
}

TEST_P(DeviceStrategyTest, UnevenSharesAndIdleRanksChangeNothing) {
  const Outcome outcome = Train(WithUnevenShares(On(GetParam())), kSteps);
  ExpectSameOnAllRanks(outcome);
  ExpectLossesNear(outcome, Train(OneProcessor(), kSteps), kNear);
}

TEST_P(DeviceStrategyTest, RecordedStepsGiveTheSameBits) {
  Job ordinary = On(GetParam());
  ordinary.record_steps = false;
  ExpectSame(Train(On(GetParam()), kSteps), Train(ordinary, kSteps));
}

TEST_P(DeviceStrategyTest, BatchStatisticsAndDropoutAreThoseOfOneProcessor) {
  Job job = On(GetParam()), reference = OneProcessor();
  for (Job* each : {&job, &reference}) each->normalised = true;
  if (job.machines > 1) {
    Meeting meeting;
    const auto thrown = RunRanks(job.size(), [&](int r) { JobRank(job, meeting, r).Setup(); });
    EXPECT_THAT(thrown, Each(HasSubstr("BatchNormalization with replicas on GPUs of several machines")));
    return;
  }
  const Outcome wanted = Train(reference, kSteps);
  EXPECT_LT(wanted.losses[0].back(), wanted.losses[0].front() / 2) << "the job is to learn something";
  for (const Job& each : {job, WithUnevenShares(job)}) {
    const Outcome outcome = Train(each, kSteps);
    ExpectSameOnAllRanks(outcome);
    ExpectLossesNear(outcome, wanted, kNear);
  }
}

TEST_P(DeviceStrategyTest, StepsInFlightGiveTheSameBits) {
  const Job job = On(GetParam());
  const Outcome one_by_one = Train(job, kSteps);
  Meeting meeting;
  const auto thrown = RunRanks(job.size(), [&](int r) {
    JobRank rank(job, meeting, r);
    rank.Setup();
    const int most = rank.strategy().max_in_flight();
    EXPECT_GT(most, 1);
    std::vector<double> losses;
    int64_t started = 0;
    while (started < kSteps || static_cast<int64_t>(losses.size()) < kSteps) {
      while (started < kSteps && started - static_cast<int64_t>(losses.size()) < most) {
        rank.strategy().StartStep(rank.Load(started++));
      }
      losses.push_back(rank.strategy().FinishStep().loss);
    }
    EXPECT_EQ(losses, one_by_one.losses[0]) << r;
    EXPECT_EQ(rank.strategy().step(), kSteps);
    rank.strategy().Finish();
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

TEST_P(DeviceStrategyTest, RegularisationAndMomentumAreTheSameToo) {
  const Outcome outcome = Train(WithMomentumAndPenalty(On(GetParam())), kSteps);
  ExpectSameOnAllRanks(outcome);
  ExpectLossesNear(outcome, Train(WithMomentumAndPenalty(OneProcessor()), kSteps), kNear);
}

TEST_P(DeviceStrategyTest, TheAverageIsReadWhereAsked) { ExpectTheAverageIsReadWhereAsked(On(GetParam())); }

TEST_P(DeviceStrategyTest, TheWholeRecipeIsTheSameToo) {
  const Outcome outcome = Train(WithTheWholeRecipe(On(GetParam())), kSteps);
  ExpectSameOnAllRanks(outcome);
  ExpectLossesNear(outcome, Train(WithTheWholeRecipe(OneProcessor()), kSteps), kNear);
}

TEST_P(DeviceStrategyTest, CountsAreThoseOfTheGlobalBatch) {
  const Job job = On(GetParam());
  ExpectCountsOfTheGlobalBatch(job, OneProcessor());
  Train(job, 1,
        [&](JobRank&, const StepResult& result) { EXPECT_EQ(result.collective_bytes > 0, job.size() > 1); });
}

TEST_P(DeviceStrategyTest, AllStopAfterTheSameStep) { ExpectAllStopAfterTheSameStep(On(GetParam())); }

TEST_P(DeviceStrategyTest, ARestoredStateGoesOnBitForBit) {
  EXPECT_EQ(ExpectARestoredStateGoesOn(On(GetParam())), 1) << "the others have it from rank 0";
}

TEST_P(DeviceStrategyTest, SumsOfAnEvaluationAreOverAllRanks) {
  const Job job = On(GetParam());
  Train(job, 3, [&](JobRank& rank, const StepResult&) {
    const Totals sum = rank.strategy().Sum({.loss_sum = 0.5 + rank.rank(), .correct = 1, .samples = 2});
    const int n = job.size();
    EXPECT_EQ(sum.loss_sum, 0.5 * n + n * (n - 1) / 2);
    EXPECT_EQ(sum.correct, n);
    EXPECT_EQ(sum.samples, 2 * n);
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, DeviceStrategyTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

class BrokenDeviceStrategyTest : public OnGpus {};

TEST_P(BrokenDeviceStrategyTest, ARankThatFailsEndsTheOthersSoon) {
  const Job job = On(GetParam());
  const auto start = std::chrono::steady_clock::now();
  std::atomic<int> done = 0;
  const Outcome outcome = Train(job, 100, [&](JobRank& rank, const StepResult&) {
    if (rank.rank() == 1 && rank.strategy().step() == 5) throw BadData("a torn page");
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << "well before the deadline";
  for (size_t r = 0; r < outcome.thrown.size(); ++r) {
    if (r == 1) {
      EXPECT_THAT(outcome.thrown[r], HasSubstr("torn page"));
    } else {
      EXPECT_THAT(outcome.thrown[r], HasSubstr(": all-reduce: rank "))
          << r;  // of step 5, if it was not quite through
    }
  }
}

TEST_P(BrokenDeviceStrategyTest, AWrongLabelIsNamedByTheRankThatHasIt) {
  const Job job = On(GetParam());
  Meeting meeting;
  const auto thrown = RunRanks(job.size(), [&](int r) {
    JobRank rank(job, meeting, r);
    rank.Setup();
    rank.Step(0);
    std::vector<int32_t> labels(static_cast<size_t>(job.global_batch / job.size()), 1);
    if (r == 1) labels[3] = 1'000'000;
    rank.strategy().TrainStep(rank.Load(1, labels));
    rank.Step(2);
  });
  for (size_t r = 0; r < thrown.size(); ++r) {
    EXPECT_THAT(thrown[r], r == 1 ? HasSubstr("1000000") : HasSubstr(": all-reduce: rank 1 ")) << r;
  }
}

TEST_P(BrokenDeviceStrategyTest, ARankThatStaysAwayIsNamedAtTheDeadline) {
  Job job = On(GetParam());
  job.timeout = std::chrono::seconds(3);
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
    if (r == 1) continue;
    // One of those that wait is the first to give up, and the others may hear of it from that one.
    EXPECT_THAT(thrown[r], HasSubstr("step 2: all-reduce: ")) << r;
    EXPECT_THAT(thrown[r], AnyOf(HasSubstr("rank 1 "), HasSubstr("given up"))) << r;
  }
  EXPECT_THAT(thrown, ::testing::Contains(HasSubstr("rank 1 ")));
}

TEST_P(BrokenDeviceStrategyTest, DifferentModelsAreFoundAtSetup) {
  const Job job = On(GetParam());
  Meeting meeting;
  const auto thrown = RunRanks(job.size(), [&](int r) {
    Job mine = job;
    if (r == 1) mine.widths[1] += 16;
    JobRank rank(mine, meeting, r);
    EXPECT_THROW(rank.Setup(), BadModel);
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

TEST_P(BrokenDeviceStrategyTest, ASeedOfItsOwnIsNoMatter) {
  const Job job = On(GetParam());
  Meeting meeting;
  std::vector<std::vector<float>> parameters(static_cast<size_t>(job.size()));
  const auto thrown = RunRanks(job.size(), [&](int r) {
    Job mine = job;
    mine.seed += static_cast<uint64_t>(r);
    JobRank rank(mine, meeting, r);
    rank.Setup();
    const auto got = rank.strategy().parameters();
    parameters[static_cast<size_t>(r)].assign(got.begin(), got.end());
    rank.strategy().Finish();
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
  EXPECT_THAT(parameters, Each(parameters[0]));
}

INSTANTIATE_TEST_SUITE_P(
    Ways, BrokenDeviceStrategyTest,
    ::testing::Values(
        Case{"HierarchicalCopy2", {.local_size = 2, .ops = CrossDeviceOps::kHierarchicalCopy}, 2},
        Case{"ReductionToOneDevice3", {.local_size = 3, .ops = CrossDeviceOps::kReductionToOneDevice}, 3},
        Case{"Nccl3", {.local_size = 3, .ops = CrossDeviceOps::kNccl}, 3}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::trainer::strategy
