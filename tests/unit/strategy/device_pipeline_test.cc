#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <thread>

#include "tests/unit/strategy/device_job.h"
#include "tests/unit/strategy/promises.h"
#include "trainer/error.h"

// Pipelines whose ranks are threads of the test, on the GPUs of a plugin.
namespace lockstep::trainer::strategy {
namespace {

using ::lockstep::testing::ExpectAllStopAfterTheSameStep;
using ::lockstep::testing::ExpectARankThatFailsEndsTheOthersSoon;
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
using enum PipelineSchedule;

constexpr int64_t kFew = 12;  // steps

struct Case {
  std::string name;
  CrossDeviceOps ops;
  int gpus;  // that the ranks are on, in turn
  int ranks;
  int stages;
  PipelineSchedule schedule = kGPipe;
  int micro_batches = 0;
};

// A layer a stage, of four; of fewer stages the first ones have one each.
std::vector<LayerRange> StagesOf(int count) {
  std::vector<LayerRange> stages;
  for (size_t s = 0; s < static_cast<size_t>(count); ++s) stages.push_back({s, s});
  stages.back().last = 3;
  return stages;
}

// Small: the stand-in for GPUs is slow.
Job Four(Job job) {
  job.widths = {20, 40, 24, 16, 10};
  job.global_batch = 24;
  return job;
}

Job OneGpu() { return GpuJob(Four({.kind = Kind::kOneDevice}), 1); }

Job On(const Case& given) {
  return GpuJob(Four({.local_size = given.ranks,
                      .kind = Kind::kPipeline,
                      .ops = given.ops,
                      .pipeline = {.stages = StagesOf(given.stages),
                                   .micro_batches = given.micro_batches,
                                   .schedule = given.schedule}}),
                given.gpus);
}

std::vector<Case> Cases() {
  const auto nccl = CrossDeviceOps::kNccl, peers = CrossDeviceOps::kHierarchicalCopy;
  return {{"TwoStagesNccl", nccl, 2, 2, 2, kGPipe, 3},
          {"TwoStagesPeers1F1B", peers, 2, 2, 2, kOneForwardOneBackward, 5},
          {"FourStagesNccl1F1B", nccl, 4, 4, 4, kOneForwardOneBackward, 5},
          {"FourStagesOnTwoGpus", CrossDeviceOps::kAuto, 2, 4, 4, kGPipe, 4},
          {"TwoPipelinesOfTwoNccl", CrossDeviceOps::kAuto, 4, 4, 2, kGPipe, 4},
          {"TwoPipelinesOfTwoPeers1F1B", peers, 4, 4, 2, kOneForwardOneBackward, 16}};
}

class DevicePipelineTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNotSoMany(GetParam().gpus); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(DevicePipelineTest, GivesTheLossesOfOneDevice) {
  const Outcome outcome = Train(On(GetParam()), 100);
  ExpectSameOnAllRanks(outcome);
  const Outcome reference = Train(OneGpu(), 100);
  ASSERT_THAT(reference.thrown, Each(IsEmpty()));
  ExpectLossesNear(outcome, reference, 1e-5);
  EXPECT_LT(reference.losses[0].back(), reference.losses[0].front() / 2) << "the job is to learn something";
}

TEST_P(DevicePipelineTest, TheSameSeedGivesTheSameBitsInEitherScheduleAndWithStepsInFlight) {
  Job job = On(GetParam());
  const Outcome first = Train(job, kFew);
  ExpectSameOnAllRanks(first);
  job.pipeline.schedule = job.pipeline.schedule == kGPipe ? kOneForwardOneBackward : kGPipe;
  const Outcome other = Train(job, kFew);
  EXPECT_EQ(other.losses, first.losses);
  EXPECT_EQ(other.parameters, first.parameters);
  EXPECT_EQ(other.slots, first.slots);

  Meeting meeting;
  const auto thrown = RunRanks(job.size(), [&](int r) {
    JobRank rank(job, meeting, r);
    rank.Setup();
    Strategy& strategy = rank.strategy();
    EXPECT_GT(strategy.max_in_flight(), 1);
    std::vector<double> losses;
    for (int64_t started = 0; losses.size() < kFew;) {
      while (started < kFew && started - static_cast<int64_t>(losses.size()) < strategy.max_in_flight()) {
        strategy.StartStep(rank.Load(started++));
      }
      losses.push_back(strategy.FinishStep().loss);
    }
    EXPECT_EQ(losses, first.losses[0]) << r;
    strategy.Finish();
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

TEST_P(DevicePipelineTest, RegularisationAndTheWholeRecipeAreTheSameToo) {
  for (const auto& with : {&WithMomentumAndPenalty, &WithTheWholeRecipe}) {
    const Outcome outcome = Train(with(On(GetParam())), kFew);
    ExpectSameOnAllRanks(outcome);
    ExpectLossesNear(outcome, Train(with(OneGpu()), kFew), 1e-5);
  }
}

TEST_P(DevicePipelineTest, TheAverageIsReadWhereAsked) { ExpectTheAverageIsReadWhereAsked(On(GetParam())); }

TEST_P(DevicePipelineTest, CountsAreThoseOfTheGlobalBatch) {
  ExpectCountsOfTheGlobalBatch(On(GetParam()), OneGpu());
}

TEST_P(DevicePipelineTest, AllStopAfterTheSameStep) { ExpectAllStopAfterTheSameStep(On(GetParam())); }

TEST_P(DevicePipelineTest, ARestoredStateGoesOnBitForBit) { ExpectARestoredStateGoesOn(On(GetParam())); }

// In the middle of the training, with a batch that takes several turns of the places between the stages.
TEST_P(DevicePipelineTest, EvaluatesAsOneDeviceDoes) {
  Job job = On(GetParam()), reference = OneGpu();
  const bool part = job.shares() == 1;  // of several shares each would leave out some
  const auto evaluate = [part](JobRank& rank, double* loss, int64_t* correct) {
    Strategy& strategy = rank.strategy();
    const Batch batch = rank.Load(strategy.step() + 700);
    const int64_t n = batch.local_samples - (part ? strategy.step() % 3 : 0);
    const Totals all = strategy.Sum(strategy.Evaluate(rank.model(), batch.inputs, batch.labels, n));
    const double penalty = strategy.L2Penalty(rank.model());
    if (rank.rank() != 0) return;
    *loss += all.loss_sum / static_cast<double>(all.samples) + penalty;
    *correct += all.correct;
  };
  for (Job* each : {&job, &reference}) each->l2 = 1e-3;
  double loss = 0, want = 0;
  int64_t correct = 0, wanted = 0;
  const Outcome outcome =
      Train(job, 6, [&](JobRank& rank, const StepResult&) { evaluate(rank, &loss, &correct); });
  ExpectSameOnAllRanks(outcome);
  Train(reference, 6, [&](JobRank& rank, const StepResult&) { evaluate(rank, &want, &wanted); });
  EXPECT_NEAR(loss, want, std::abs(want) * 1e-5);
  EXPECT_EQ(correct, wanted);
}

// Each way round, also of parts that stages bring at the same time: the format is that of the whole model.
TEST_P(DevicePipelineTest, GoesOnAsAnotherStrategyAndBack) {
  const auto hand_over = [](const Job& from, const Job& to) {
    WholeState state{.slots = std::vector<std::vector<float>>(2)};
    Train(from, 10, [&](JobRank& rank, const StepResult&) {
      if (rank.strategy().step() != 10) return;
      rank.strategy().Export(rank.model(), rank.strategy().ShareOut(rank.model(), 1),
                             rank.rank() == 0 ? &state : nullptr);
    });
    Meeting meeting;
    std::vector<double> losses;
    const auto thrown = RunRanks(to.size(), [&](int r) {
      JobRank rank(to, meeting, r);
      rank.Setup();
      rank.strategy().Import(rank.model(), 10, state);
      for (int64_t step = 10; step < 20; ++step) {
        const double loss = rank.Step(step).loss;
        if (r == 0) losses.push_back(loss);
      }
      rank.strategy().Finish();
    });
    EXPECT_THAT(thrown, Each(IsEmpty()));
    return losses;
  };
  const std::vector<double> want = Train(OneGpu(), 20).losses[0];
  const Job job = On(GetParam()), mirrored = Four({.local_size = 2});
  for (const auto& [from, to] : {std::pair{job, mirrored}, std::pair{mirrored, job}}) {
    const std::vector<double> losses = hand_over(from, to);
    ASSERT_EQ(losses.size(), 10u);
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], want[10 + i], want[10 + i] * 1e-5) << i;
  }
}

TEST_P(DevicePipelineTest, EachStageBringsWhatIsItsOwn) {
  const Job job = On(GetParam());
  std::vector<std::vector<float>> brought(static_cast<size_t>(job.size()));
  std::vector<size_t> variables;  // that were brought, of all
  size_t all = 0;
  std::mutex mutex;
  const Outcome outcome = Train(job, 3, [&](JobRank& rank, const StepResult&) {
    if (rank.strategy().step() != 3) return;
    const Shares shares = rank.strategy().ShareOut(rank.model(), job.size());
    WholeState mine{.slots = std::vector<std::vector<float>>(2)};
    rank.strategy().Export(rank.model(), shares, shares.brings() ? &mine : nullptr);
    const std::scoped_lock lock(mutex);
    all = rank.strategy().Variables(rank.model()).size();
    if (!shares.brings()) return;
    variables.insert(variables.end(), shares.mine().variables.begin(), shares.mine().variables.end());
    EXPECT_EQ(mine.slots[0].size(), mine.parameters.size());
    brought[static_cast<size_t>(rank.rank())] = mine.parameters;
  });
  ExpectSameOnAllRanks(outcome);
  std::sort(variables.begin(), variables.end());
  ASSERT_EQ(variables.size(), all);
  for (size_t i = 0; i < all; ++i) EXPECT_EQ(variables[i], i);
  size_t floats = 0;
  for (const auto& part : brought) floats += part.size();
  ASSERT_EQ(floats, outcome.parameters[0].size());
  if (job.shares() > 1) return;  // (there a stage's variables are shared out by size)
  std::vector<float> together;
  for (const auto& part : brought) together.insert(together.end(), part.begin(), part.end());
  EXPECT_EQ(together, outcome.parameters[0]);
}

TEST_P(DevicePipelineTest, ARankThatFailsEndsTheOthersSoon) {
  ExpectARankThatFailsEndsTheOthersSoon(On(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Ways, DevicePipelineTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

class OneCaseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNotSoMany(4); !why.empty()) GTEST_SKIP() << why;
  }
  Job Peers(int ranks, int stages) const {
    return On({"", CrossDeviceOps::kHierarchicalCopy, 4, ranks, stages, kOneForwardOneBackward, 3});
  }
  Job Nccl(int ranks, int stages) const {
    return On({"", CrossDeviceOps::kNccl, 4, ranks, stages, kGPipe, 3});
  }
};
using SeveralDevicePipelinesTest = OneCaseTest;
using DevicePipelineFailureTest = OneCaseTest;

TEST_F(SeveralDevicePipelinesTest, UnevenSharesAndIdlePipelinesChangeNothing) {
  for (const Job& job : {Peers(4, 2), Nccl(4, 2)}) {
    const Outcome outcome = Train(WithUnevenShares(job), kFew);
    ExpectSameOnAllRanks(outcome);
    ExpectLossesNear(outcome, Train(OneGpu(), kFew), 1e-5);
  }
}

// Of a micro-batch, as on processors; and Dropout's draws are of the sample.
TEST_F(SeveralDevicePipelinesTest, BatchStatisticsAndDropoutAreThoseOfAPipelineOnProcessors) {
  Job job = Nccl(2, 2);
  job.normalised = true;
  job.synchronised = false;
  job.pipeline.stages = {{0, 5}, {6, 12}};
  Job processors = job;
  processors.backend = {};
  processors.ops = CrossDeviceOps::kAuto;
  const Outcome outcome = Train(job, kFew);
  ExpectSameOnAllRanks(outcome);
  ExpectLossesNear(outcome, Train(processors, kFew), 1e-4);
}

TEST_F(DevicePipelineFailureTest, AWrongLabelIsNamedByTheRankThatHasIt) {
  for (const Job& job : {Peers(2, 2), Nccl(2, 2)}) {
    Meeting meeting;
    const auto thrown = RunRanks(2, [&](int r) {
      JobRank rank(job, meeting, r);
      rank.Setup();
      rank.Step(0);
      std::vector<int32_t> labels(static_cast<size_t>(job.global_batch), 1);
      labels[10] = 1'000'000;  // of the second micro-batch
      rank.strategy().TrainStep(rank.Load(1, labels));
      rank.Step(2);
    });
    EXPECT_THAT(thrown[1], ::testing::AllOf(HasSubstr("1000000"), HasSubstr("10")));
    EXPECT_THAT(thrown[0], HasSubstr("step 2: all-reduce: rank 1 "));
  }
}

TEST_F(DevicePipelineFailureTest, ARankThatStaysAwayIsNamedAtTheDeadline) {
  for (Job job : {Peers(3, 3), Nccl(3, 3)}) {
    job.timeout = std::chrono::seconds(2);
    Meeting meeting;
    std::atomic<int> done = 0;
    const auto thrown = RunRanks(3, [&](int r) {
      JobRank rank(job, meeting, r);
      rank.Setup();
      rank.Step(0);
      if (r == 1) {
        while (done.load() < 2) std::this_thread::yield();
        return;
      }
      try {
        rank.Step(1);
      } catch (const CollectiveLost&) {
        done.fetch_add(1);
        throw;
      }
    });
    for (const size_t r : {0u, 2u}) {
      EXPECT_THAT(thrown[r], HasSubstr("step 2: all-reduce")) << r;
      EXPECT_THAT(thrown[r], AnyOf(HasSubstr("rank 1 "), HasSubstr("given up"))) << r;
    }
    EXPECT_THAT(thrown, ::testing::Contains(HasSubstr("rank 1 ")));
  }
}

TEST_F(DevicePipelineFailureTest, RanksThatDifferFindOutAtSetup) {
  const Job job = Peers(2, 2);
  Meeting meeting;
  const auto thrown = RunRanks(2, [&](int r) {
    Job mine = job;
    mine.seed += static_cast<uint64_t>(r);
    JobRank(mine, meeting, r).Setup();
  });
  EXPECT_THAT(thrown, Each(HasSubstr("the seed")));
}

TEST_F(DevicePipelineFailureTest, OpsOfProcessorsAndSynchronisedStatisticsAreRefused) {
  const auto thrown = [](const Job& job) {
    Meeting meeting;
    return RunRanks(job.size(), [&](int r) { JobRank(job, meeting, r).Setup(); });
  };
  Job gloo = Peers(2, 2);
  gloo.ops = CrossDeviceOps::kGloo;
  EXPECT_THAT(thrown(gloo), Each(HasSubstr("crossDeviceOps Gloo sums in the memory of processors")));
  Job synchronised = Peers(2, 2);
  synchronised.normalised = true;
  synchronised.pipeline.stages = {{0, 5}, {6, 12}};
  EXPECT_THAT(thrown(synchronised), Each(HasSubstr("synchronised batch normalization")));
}

}  // namespace
}  // namespace lockstep::trainer::strategy
