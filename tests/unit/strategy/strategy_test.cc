#include "trainer/strategy/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "tests/unit/collectives/fork_store.h"
#include "tests/unit/collectives/processes.h"
#include "tests/unit/strategy/job.h"
#include "trainer/collectives/local/shared_segment.h"
#include "trainer/error.h"

namespace lockstep::trainer::strategy {
namespace {

using ::lockstep::testing::ForkStore;
using ::lockstep::testing::Job;
using ::lockstep::testing::JobRank;
using ::lockstep::testing::Meeting;
using ::lockstep::testing::Outcome;
using ::lockstep::testing::Processes;
using ::lockstep::testing::RunRanks;
using ::lockstep::testing::Train;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSteps = 100;

Job OneDeviceJob() { return {.kind = Kind::kOneDevice}; }

void ExpectSameOnAllRanks(const Outcome& outcome) {
  EXPECT_THAT(outcome.thrown, Each(IsEmpty()));
  for (size_t r = 1; r < outcome.losses.size(); ++r) {
    EXPECT_EQ(outcome.losses[r], outcome.losses[0]) << r;
    EXPECT_EQ(outcome.parameters[r], outcome.parameters[0]) << r;
    EXPECT_EQ(outcome.slots[r], outcome.slots[0]) << r;
  }
}

void ExpectLossesNear(const Outcome& outcome, const Outcome& reference, double relative) {
  ASSERT_EQ(outcome.losses[0].size(), reference.losses[0].size());
  for (size_t step = 0; step < reference.losses[0].size(); ++step) {
    const double want = reference.losses[0][step];
    EXPECT_NEAR(outcome.losses[0][step], want, std::abs(want) * relative) << "step " << step;
  }
}

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
          {"Gloo2", {.local_size = 2, .ops = CrossDeviceOps::kGloo}},
          {"Gloo4", {.local_size = 4, .ops = CrossDeviceOps::kGloo}},
          {"TwoMachines", {.machines = 2, .kind = multi}},
          {"TwoMachinesOfTwo", {.machines = 2, .local_size = 2, .kind = multi}},
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
  Job job = GetParam().job;
  // All to the last rank, to the first, then in rising parts.
  job.share = [&job](int rank, int64_t step) -> int64_t {
    const int n = job.size();
    if (step % 3 == 0) return rank == n - 1 ? job.global_batch : 0;
    if (step % 3 == 1) return rank == 0 ? job.global_batch : 0;
    const int64_t part = 2 * job.global_batch * rank / (n * n);
    int64_t others = 0;
    for (int r = 0; r + 1 < n; ++r) others += 2 * job.global_batch * r / (n * n);
    return rank == n - 1 ? job.global_batch - others : part;
  };
  const Outcome outcome = Train(job, kSteps);
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
  Job job = GetParam().job, reference = OneDeviceJob();
  for (Job* each : {&job, &reference}) {
    each->optimizer = {.kind = OptimizerKind::kSgd, .learning_rate = 0.05, .momentum = 0.9, .nesterov = true};
    each->l2 = 1e-3;
  }
  const Outcome outcome = Train(job, 50);
  ExpectSameOnAllRanks(outcome);
  ExpectLossesNear(outcome, Train(reference, 50), 1e-5);
}

TEST_P(StrategyTest, ASingleNumberToLearnIsEnough) {
  Job job = GetParam().job, reference = OneDeviceJob();
  for (Job* each : {&job, &reference}) each->widths = {1, 2};
  const Outcome outcome = Train(job, 20);
  ExpectSameOnAllRanks(outcome);
  ExpectLossesNear(outcome, Train(reference, 20), 1e-5);
}

TEST_P(StrategyTest, CountsAreThoseOfTheGlobalBatch) {
  const Job job = GetParam().job;
  std::vector<int64_t> correct(20, -1);
  const auto thrown = Train(job, 20, [&](JobRank& rank, const StepResult& result) {
                        EXPECT_EQ(result.samples, job.global_batch);
                        EXPECT_FALSE(result.stop);
                        EXPECT_GE(result.collective_seconds, 0);
                        EXPECT_LT(result.collective_seconds, 10);
                        if (rank.rank() == 0)
                          correct[static_cast<size_t>(rank.strategy().step() - 1)] = result.correct;
                      }).thrown;
  EXPECT_THAT(thrown, Each(IsEmpty()));
  std::vector<int64_t> reference;
  Train(OneDeviceJob(), 20, [&](JobRank&, const StepResult& result) { reference.push_back(result.correct); });
  EXPECT_EQ(correct, reference);
}

TEST_P(StrategyTest, AllStopAfterTheSameStep) {
  const Job job = GetParam().job;
  std::atomic<int64_t> asked = 0;
  std::vector<int64_t> stopped(static_cast<size_t>(job.size()), -1);
  const Outcome outcome = Train(job, 1000, [&](JobRank& rank, const StepResult& result) {
    // The last rank is asked first, the others later or never.
    if (rank.strategy().step() == 7 + job.size() - rank.rank()) {
      asked.fetch_add(1);
      rank.strategy().RequestStop();
    }
    if (result.stop) stopped[static_cast<size_t>(rank.rank())] = rank.strategy().step();
  });
  EXPECT_GE(asked.load(), 1);
  EXPECT_THAT(stopped, Each(9));
  ExpectSameOnAllRanks(outcome);
}

TEST_P(StrategyTest, ARestoredStateGoesOnBitForBit) {
  const Job job = GetParam().job;
  const Outcome whole = Train(job, 20);

  std::vector<float> parameters;
  std::vector<std::vector<float>> slots(2);
  Train(job, 10, [&](JobRank& rank, const StepResult&) {
    Strategy& strategy = rank.strategy();
    if (rank.rank() != 0 || strategy.step() != 10) return;
    parameters.assign(strategy.parameters().begin(), strategy.parameters().end());
    for (int i = 0; i < 2; ++i)
      slots[static_cast<size_t>(i)].assign(strategy.slot(i).begin(), strategy.slot(i).end());
  });

  Meeting meeting;
  std::atomic<int> fills = 0;
  const auto thrown = RunRanks(job.size(), [&](int r) {
    JobRank rank(job, meeting, r);
    rank.Setup();
    for (int64_t step = 0; step < 3; ++step) rank.Step(step + 500);  // astray
    rank.strategy().Restore(10, [&](std::span<float> to, std::span<const std::span<float>> to_slots) {
      fills.fetch_add(1);
      std::copy(parameters.begin(), parameters.end(), to.begin());
      ASSERT_EQ(to_slots.size(), 2u);
      for (size_t i = 0; i < 2; ++i) std::copy(slots[i].begin(), slots[i].end(), to_slots[i].begin());
    });
    EXPECT_EQ(rank.strategy().step(), 10);
    for (int64_t step = 10; step < 20; ++step) {
      EXPECT_EQ(rank.Step(step).loss, whole.losses[0][static_cast<size_t>(step)]) << step;
    }
    EXPECT_EQ(rank.strategy().step(), 20);
    rank.strategy().Finish();
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
  EXPECT_EQ(fills.load(), job.ops == CrossDeviceOps::kGloo ? job.size() : job.machines);
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
  const Job job = GetParam().job;
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = Train(job, 100, [&](JobRank& rank, const StepResult&) {
    if (rank.rank() == 1 && rank.strategy().step() == 5) throw BadData("a torn page");
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << "well before the deadline";
  for (size_t r = 0; r < outcome.thrown.size(); ++r) {
    EXPECT_THAT(outcome.thrown[r], r == 1 ? HasSubstr("torn page") : HasSubstr("step 6: all-reduce")) << r;
  }
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
  const Job job = GetParam().job;
  ForkStore store;
  using Clock = std::chrono::steady_clock;
  const auto noticed = collectives::SharedSegment::Create(
      "noticed", sizeof(Clock::time_point) * static_cast<size_t>(job.size()));
  const auto steps = collectives::SharedSegment::Create("steps", sizeof(std::atomic<int64_t>));
  std::atomic<int64_t>& step_of_last = steps.View<std::atomic<int64_t>>(0, 1)[0];
  Processes processes(0, job.size(), [&](int r) {
    JobRank rank(job, store, nullptr, r);
    rank.Setup();
    try {
      for (int64_t step = 0;; ++step) {
        rank.Step(step);
        if (r == job.size() - 1) step_of_last.store(step);
      }
    } catch (const CollectiveLost&) {
      noticed.View<Clock::time_point>(0, static_cast<size_t>(job.size()))[static_cast<size_t>(r)] =
          Clock::now();
    }
  });
  const auto give_up = lockstep::testing::Soon();
  while (step_of_last.load() < 10 && Clock::now() < give_up) std::this_thread::yield();
  const auto killed = Clock::now();
  processes.Kill(static_cast<size_t>(job.size() - 1));
  for (int r = 0; r + 1 < job.size(); ++r) {
    EXPECT_EQ(processes.Wait(static_cast<size_t>(r)), 0) << r;
    const auto at =
        noticed.View<Clock::time_point>(0, static_cast<size_t>(job.size()))[static_cast<size_t>(r)];
    EXPECT_LT(at - killed, std::chrono::seconds(1)) << r;
  }
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
  for (const CrossDeviceOps ops :
       {CrossDeviceOps::kNccl, CrossDeviceOps::kHierarchicalCopy, CrossDeviceOps::kReductionToOneDevice}) {
    EXPECT_THAT(Refusal({.ops = ops, .world = two, .store = &store}), HasSubstr("sum on GPUs"));
  }
  EXPECT_EQ(Refusal({.world = two, .store = &store}), "accepted");
  EXPECT_EQ(Refusal({.kind = Kind::kMultiWorkerMirrored, .world = two, .store = &store}), "accepted");
}

}  // namespace
}  // namespace lockstep::trainer::strategy
