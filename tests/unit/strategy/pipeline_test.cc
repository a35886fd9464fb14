#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "tests/unit/collectives/fork_store.h"
#include "tests/unit/collectives/processes.h"
#include "tests/unit/strategy/promises.h"
#include "trainer/collectives/local/shared_segment.h"
#include "trainer/error.h"

namespace lockstep::trainer::strategy {
namespace {

using ::lockstep::testing::ExpectAKilledProcessEndsTheOthersWithinASecond;
using ::lockstep::testing::ExpectAllStopAfterTheSameStep;
using ::lockstep::testing::ExpectARankThatFailsEndsTheOthersSoon;
using ::lockstep::testing::ExpectARestoredStateGoesOn;
using ::lockstep::testing::ExpectCountsOfTheGlobalBatch;
using ::lockstep::testing::ExpectLossesNear;
using ::lockstep::testing::ExpectSameOnAllRanks;
using ::lockstep::testing::ForkStore;
using ::lockstep::testing::Job;
using ::lockstep::testing::JobRank;
using ::lockstep::testing::Meeting;
using ::lockstep::testing::Outcome;
using ::lockstep::testing::Processes;
using ::lockstep::testing::RunRanks;
using ::lockstep::testing::Train;
using ::lockstep::testing::WithMomentumAndPenalty;
using ::lockstep::testing::WithUnevenShares;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using enum PipelineSchedule;

constexpr int64_t kSteps = 100;

Job OneDeviceJob() { return {.kind = Kind::kOneDevice}; }

Job PipelineJob(int ranks, std::vector<LayerRange> stages, int micro_batches = 0,
                PipelineSchedule schedule = kGPipe) {
  return {.local_size = ranks,
          .kind = Kind::kPipeline,
          .pipeline = {.stages = std::move(stages), .micro_batches = micro_batches, .schedule = schedule}};
}

struct Case {
  std::string name;
  Job job;
};

std::vector<Case> Cases() {
  const std::vector<LayerRange> two{{0, 0}, {1, 2}}, three{{0, 0}, {1, 1}, {2, 2}};
  return {{"TwoStages", PipelineJob(2, two)},
          {"TwoStages1F1B", PipelineJob(2, two, 0, kOneForwardOneBackward)},
          {"ThreeStages", PipelineJob(3, three)},
          {"ThreeStages1F1B", PipelineJob(3, three, 5, kOneForwardOneBackward)},
          {"OneMicroBatch", PipelineJob(2, two, 1)},
          {"MoreMicroBatchesThanSamples", PipelineJob(2, two, 64, kOneForwardOneBackward)},
          {"TwoPipelinesOfTwo", PipelineJob(4, two, 4, kOneForwardOneBackward)},
          {"TwoPipelinesOfThree", PipelineJob(6, three, 4)},
          {"ThreePipelinesOfOne", PipelineJob(3, {{0, 2}}, 4)}};
}

class PipelineTest : public ::testing::TestWithParam<Case> {};

TEST_P(PipelineTest, GivesTheLossesOfOneDevice) {
  const Outcome outcome = Train(GetParam().job, kSteps);
  ExpectSameOnAllRanks(outcome);
  const Outcome reference = Train(OneDeviceJob(), kSteps);
  ASSERT_THAT(reference.thrown, Each(IsEmpty()));
  ExpectLossesNear(outcome, reference, 1e-5);
  EXPECT_LT(reference.losses[0].back(), reference.losses[0].front() / 4) << "the job is to learn something";
  ASSERT_EQ(outcome.parameters[0].size(), reference.parameters[0].size());
  for (size_t i = 0; i < reference.parameters[0].size(); ++i) {
    ASSERT_NEAR(outcome.parameters[0][i], reference.parameters[0][i], 1e-3) << i;
  }
}

TEST_P(PipelineTest, TheSameSeedGivesTheSameBitsInEitherSchedule) {
  Job job = GetParam().job;
  const Outcome first = Train(job, 30), second = Train(job, 30);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.parameters, second.parameters);
  EXPECT_EQ(first.slots, second.slots);
  job.pipeline.schedule = job.pipeline.schedule == kGPipe ? kOneForwardOneBackward : kGPipe;
  EXPECT_EQ(Train(job, 30).parameters, first.parameters);
  job.seed = 2;
  EXPECT_NE(Train(job, 1).parameters, Train(GetParam().job, 1).parameters);
}

TEST_P(PipelineTest, RegularisationAndMomentumAreTheSameToo) {
  const Outcome outcome = Train(WithMomentumAndPenalty(GetParam().job), 50);
  ExpectSameOnAllRanks(outcome);
  ExpectLossesNear(outcome, Train(WithMomentumAndPenalty(OneDeviceJob()), 50), 1e-5);
}

TEST_P(PipelineTest, CountsAreThoseOfTheGlobalBatch) {
  ExpectCountsOfTheGlobalBatch(GetParam().job, OneDeviceJob());
}

TEST_P(PipelineTest, AllStopAfterTheSameStep) { ExpectAllStopAfterTheSameStep(GetParam().job); }

TEST_P(PipelineTest, ARestoredStateGoesOnBitForBit) { ExpectARestoredStateGoesOn(GetParam().job); }

// In the middle of the training, with a batch that takes several turns of the places between the stages.
TEST_P(PipelineTest, EvaluatesAsOneDeviceDoes) {
  Job job = GetParam().job, reference = OneDeviceJob();
  const bool part = job.shares() == 1;  // of several shares each would leave out some
  const auto evaluate = [part](JobRank& rank, const StepResult&, double* loss, int64_t* correct) {
    Strategy& strategy = rank.strategy();
    const Batch batch = rank.Load(strategy.step() + 700);
    const int64_t n = batch.local_samples - (part ? strategy.step() % 3 : 0);
    const Totals some = strategy.Evaluate(rank.model(), batch.inputs, batch.labels, n);
    const Totals all = strategy.Sum(some);
    const double penalty = strategy.L2Penalty(rank.model());
    if (rank.rank() != 0) return;
    *loss += all.loss_sum / static_cast<double>(all.samples) + penalty;
    *correct += all.correct;
  };
  for (Job* each : {&job, &reference}) each->l2 = 1e-3;
  double loss = 0, want = 0;
  int64_t correct = 0, wanted = 0;
  const Outcome outcome =
      Train(job, 10, [&](JobRank& rank, const StepResult& r) { evaluate(rank, r, &loss, &correct); });
  ExpectSameOnAllRanks(outcome);
  Train(reference, 10, [&](JobRank& rank, const StepResult& r) { evaluate(rank, r, &want, &wanted); });
  EXPECT_NEAR(loss, want, std::abs(want) * 1e-5);
  EXPECT_EQ(correct, wanted);
}

// Each way round: the format is that of the whole model.
TEST_P(PipelineTest, GoesOnAsAnotherStrategyAndBack) {
  const auto hand_over = [](const Job& from, const Job& to) {
    WholeState state{.slots = std::vector<std::vector<float>>(2)};
    Outcome first = Train(from, 10, [&](JobRank& rank, const StepResult&) {
      if (rank.strategy().step() == 10)
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
  const std::vector<double> want = Train(OneDeviceJob(), 20).losses[0];
  const Job mirrored{.local_size = 2}, other = PipelineJob(2, {{0, 1}, {2, 2}});
  for (const auto& [from, to] : {std::pair{GetParam().job, mirrored}, std::pair{mirrored, GetParam().job},
                                 std::pair{GetParam().job, other}}) {
    const std::vector<double> losses = hand_over(from, to);
    ASSERT_EQ(losses.size(), 10u);
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], want[10 + i], want[10 + i] * 1e-5) << i;
  }
}

TEST_P(PipelineTest, NamesTheVariablesOfTheWholeModel) {
  const Job job = GetParam().job;
  Meeting meeting;
  JobRank whole(OneDeviceJob(), meeting, 0);
  const auto thrown = RunRanks(job.size(), [&](int r) {
    JobRank rank(job, meeting, r);
    rank.Setup();
    const auto variables = rank.strategy().Variables(rank.model());
    const auto& wanted = whole.model().variables();
    ASSERT_EQ(variables.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(variables[i].name, wanted[i].name);
      EXPECT_EQ(variables[i].shape, wanted[i].shape);
    }
    rank.strategy().Finish();
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

TEST_P(PipelineTest, RanksThatAreProcessesGiveTheSameBits) {
  const Job job = GetParam().job;
  const Outcome threads = Train(job, 20);
  ForkStore store;
  const size_t floats = threads.parameters[0].size();
  const auto result = collectives::SharedSegment::Create("result", floats * sizeof(float));
  {
    Processes processes(0, job.size(), [&](int r) {
      JobRank rank(job, store, nullptr, r);
      rank.Setup();
      for (int64_t step = 0; step < 20; ++step) rank.Step(step);
      WholeState state{.slots = std::vector<std::vector<float>>(2)};
      rank.strategy().Export(rank.model(), rank.strategy().ShareOut(rank.model(), 1),
                             r == 0 ? &state : nullptr);
      if (r == 0)
        std::copy(state.parameters.begin(), state.parameters.end(), result.View<float>(0, floats).begin());
      rank.strategy().Finish();
    });
    for (int r = 0; r < job.size(); ++r) EXPECT_EQ(processes.Wait(static_cast<size_t>(r)), 0);
  }
  const auto parameters = result.View<float>(0, floats);
  EXPECT_TRUE(std::equal(parameters.begin(), parameters.end(), threads.parameters[0].begin()));
}

TEST_P(PipelineTest, ARankThatFailsEndsTheOthersSoon) {
  ExpectARankThatFailsEndsTheOthersSoon(GetParam().job);
}

TEST_P(PipelineTest, AKilledProcessEndsTheOthersWithinASecond) {
  ExpectAKilledProcessEndsTheOthersWithinASecond(GetParam().job);
}

INSTANTIATE_TEST_SUITE_P(Ways, PipelineTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(SeveralPipelinesTest, UnevenSharesAndIdlePipelinesChangeNothing) {
  for (const int ranks : {4, 6}) {
    const Job job = PipelineJob(ranks, {{0, 0}, {1, 2}}, 3, kOneForwardOneBackward);
    const Outcome outcome = Train(WithUnevenShares(job), kSteps);
    ExpectSameOnAllRanks(outcome);
    ExpectLossesNear(outcome, Train(OneDeviceJob(), kSteps), 1e-5);
  }
}

// What every rank throws at setup, when rank 1 has changed its own copy of the job.
std::vector<std::string> ThrownAtSetup(const Job& job, const std::function<void(Job&)>& change) {
  Meeting meeting;
  return RunRanks(job.size(), [&](int r) {
    Job mine = job;
    if (r == 1) change(mine);
    JobRank rank(mine, meeting, r);
    rank.Setup();
  });
}

TEST(PipelineSetupTest, RanksThatDifferFindOut) {
  const Job job = PipelineJob(2, {{0, 0}, {1, 2}}), four = PipelineJob(4, {{0, 0}, {1, 2}});
  EXPECT_THAT(ThrownAtSetup(job, [](Job& mine) { mine.widths[1] += 1; }), Each(HasSubstr("hands over")));
  EXPECT_THAT(ThrownAtSetup(four, [](Job& mine) { mine.widths[2] += 1; }),
              Each(HasSubstr("the parameters of stage 1")));
  EXPECT_THAT(ThrownAtSetup(job, [](Job& mine) { mine.seed += 1; }), Each(HasSubstr("the seed")));
  EXPECT_THAT(ThrownAtSetup(job, [](Job& mine) { mine.pipeline.micro_batches = 3; }),
              Each(HasSubstr("differ in the pipeline's stages")));
}

TEST(PipelineSetupTest, ARankThatNeverComesIsNamed) {
  Job job = PipelineJob(2, {{0, 0}, {1, 2}});
  job.timeout = std::chrono::seconds(1);
  Meeting meeting;
  JobRank rank(job, meeting, 0);
  EXPECT_THROW(rank.Setup(), RendezvousFailed);
}

TEST(PipelineSetupTest, RefusesWhatItCannotDo) {
  lockstep::testing::InMemoryStore store;
  const auto refusal = [&](const Options& options) -> std::string {
    try {
      MakeStrategy(options);
    } catch (const Unsupported& error) {
      return error.what();
    }
    return "accepted";
  };
  const PipelineOptions two{.stages = {{0, 0}, {1, 1}}};
  EXPECT_THAT(
      refusal(
          {.kind = Kind::kPipeline, .pipeline = two, .world = {.size = 2, .group_size = 2}, .store = &store}),
      HasSubstr("one machine"));
  EXPECT_THAT(
      refusal(
          {.kind = Kind::kPipeline, .pipeline = two, .world = {.size = 3, .local_size = 3}, .store = &store}),
      HasSubstr("pipelines of 2 stages"));
  EXPECT_THAT(refusal({.kind = Kind::kPipeline, .pipeline = two}), HasSubstr("pipelines of 2 stages"));
  EXPECT_EQ(refusal({.kind = Kind::kPipeline, .pipeline = {.stages = {{0, 1}}}}), "accepted");
}

}  // namespace
}  // namespace lockstep::trainer::strategy
