#include "tests/unit/strategy/promises.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "tests/unit/collectives/fork_store.h"
#include "tests/unit/collectives/processes.h"
#include "trainer/collectives/local/shared_segment.h"
#include "trainer/error.h"

namespace lockstep::testing {

using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using trainer::strategy::StepResult;
using trainer::strategy::Strategy;

void ExpectSameOnAllRanks(const Outcome& outcome) {
  EXPECT_THAT(outcome.thrown, Each(IsEmpty()));
  for (size_t r = 1; r < outcome.losses.size(); ++r) {
    EXPECT_EQ(outcome.losses[r], outcome.losses[0]) << r;
    if (!outcome.parameters[r].empty()) {
      EXPECT_EQ(outcome.parameters[r], outcome.parameters[0]) << r;
    }
    if (!outcome.slots[r].empty()) {
      EXPECT_EQ(outcome.slots[r], outcome.slots[0]) << r;
    }
  }
}

void ExpectLossesNear(const Outcome& outcome, const Outcome& reference, double relative) {
  ASSERT_EQ(outcome.losses[0].size(), reference.losses[0].size());
  for (size_t step = 0; step < reference.losses[0].size(); ++step) {
    const double want = reference.losses[0][step];
    EXPECT_NEAR(outcome.losses[0][step], want, std::abs(want) * relative) << "step " << step;
  }
}

void ExpectCountsOfTheGlobalBatch(const Job& job, const Job& reference) {
  std::vector<int64_t> correct(20, -1);
  const auto thrown = Train(job, 20, [&](JobRank& rank, const StepResult& result) {
                        EXPECT_EQ(result.samples, job.global_batch);
                        EXPECT_FALSE(result.stop);
                        EXPECT_GE(result.collective_seconds, 0);
                        EXPECT_LT(result.collective_seconds, 10);
                        if (rank.rank() == 0) {
                          correct[static_cast<size_t>(rank.strategy().step() - 1)] = result.correct;
                        }
                      }).thrown;
  EXPECT_THAT(thrown, Each(IsEmpty()));
  std::vector<int64_t> wanted;
  Train(reference, 20, [&](JobRank&, const StepResult& result) { wanted.push_back(result.correct); });
  EXPECT_EQ(correct, wanted);
}

void ExpectAllStopAfterTheSameStep(const Job& job) {
  std::atomic<int> asked = 0;
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

int ExpectARestoredStateGoesOn(const Job& job) {
  const Outcome whole = Train(job, 20);
  trainer::strategy::WholeState state;
  state.slots.resize(trainer::MakeOptimizer(job.optimizer, *trainer::MakeBackend({}))->slot_names().size());
  Train(job, 10, [&](JobRank& rank, const StepResult&) {
    Strategy& strategy = rank.strategy();
    if (strategy.step() != 10) return;
    strategy.Export(rank.model(), rank.strategy().ShareOut(rank.model(), 1),
                    rank.rank() == 0 ? &state : nullptr);
  });

  Meeting meeting;
  std::atomic<int> fills = 0;
  const auto thrown = RunRanks(job.size(), [&](int r) {
    JobRank rank(job, meeting, r);
    rank.Setup();
    for (int64_t step = 0; step < 3; ++step) rank.Step(step + 500);  // astray
    const auto fill = [&](std::span<float> to, std::span<const std::span<float>> to_slots) {
      fills.fetch_add(1);
      rank.model().ImportCanonical(state.parameters, to.data());
      ASSERT_EQ(to_slots.size(), state.slots.size());
      for (size_t i = 0; i < to_slots.size(); ++i) {
        rank.model().ImportCanonical(state.slots[i], to_slots[i].data());
      }
    };
    if (job.is_pipeline()) {
      rank.strategy().Import(rank.model(), 10, state);
    } else {
      rank.strategy().Restore(10, fill);
    }
    EXPECT_EQ(rank.strategy().step(), 10);
    for (int64_t step = 10; step < 20; ++step) {
      EXPECT_EQ(rank.Step(step).loss, whole.losses[0][static_cast<size_t>(step)]) << step;
    }
    EXPECT_EQ(rank.strategy().step(), 20);
    rank.strategy().Finish();
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
  return fills.load();
}

void ExpectTheAverageIsReadWhereAsked(const Job& plain) {
  const Job job = WithTheWholeRecipe(plain);
  const auto evaluate = [](JobRank& rank) {
    const trainer::strategy::Batch batch = rank.Load(900);
    return rank.strategy()
        .Sum(rank.strategy().Evaluate(rank.model(), batch.inputs, batch.labels, batch.local_samples))
        .loss_sum;
  };
  const auto thrown =
      Train(job, 12, [&](JobRank& rank, const StepResult&) {
        Strategy& strategy = rank.strategy();
        if (strategy.step() % 6 != 0) return;
        const double with_parameters = evaluate(rank);
        strategy.UseAverage(true);
        const double with_average = evaluate(rank);
        strategy.UseAverage(false);
        EXPECT_EQ(evaluate(rank), with_parameters);
        EXPECT_NE(with_average, with_parameters);
        // One process that has the average for its parameters.
        trainer::strategy::WholeState state;
        state.slots.resize(3);
        strategy.Export(rank.model(), rank.strategy().ShareOut(rank.model(), 1),
                        rank.rank() == 0 ? &state : nullptr);
        if (rank.rank() != 0) return;
        Job alone{.kind = trainer::strategy::Kind::kOneDevice};
        alone.widths = job.widths;
        alone.global_batch = job.global_batch;
        Meeting meeting;
        JobRank reader(alone, meeting, 0);
        reader.Setup();
        reader.strategy().Restore(0, [&](std::span<float> to, std::span<const std::span<float>>) {
          reader.model().ImportCanonical(state.slots[2], to.data());
        });
        EXPECT_NEAR(with_average, evaluate(reader), 1e-4 * with_average);
      }).thrown;
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

void ExpectARankThatFailsEndsTheOthersSoon(const Job& job) {
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = Train(job, 100, [&](JobRank& rank, const StepResult&) {
    if (rank.rank() == 1 && rank.strategy().step() == 5) throw trainer::BadData("a torn page");
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << "well before the deadline";
  // (Of a pipeline some may not have begun to update in step 5, and then must not.)
  const std::string found = job.is_pipeline() ? "step [56]: all-reduce" : "step 6: all-reduce";
  for (size_t r = 0; r < outcome.thrown.size(); ++r) {
    EXPECT_THAT(outcome.thrown[r], ContainsRegex(r == 1 ? "torn page" : found)) << r;
  }
}

void ExpectAKilledProcessEndsTheOthersWithinASecond(const Job& job) {
  ForkStore store;
  using Clock = std::chrono::steady_clock;
  const auto noticed = trainer::collectives::SharedSegment::Create(
      "noticed", sizeof(Clock::time_point) * static_cast<size_t>(job.size()));
  const auto steps = trainer::collectives::SharedSegment::Create("steps", sizeof(std::atomic<int64_t>));
  std::atomic<int64_t>& step_of_last = steps.View<std::atomic<int64_t>>(0, 1)[0];
  Processes processes(0, job.size(), [&](int r) {
    JobRank rank(job, store, nullptr, r);
    rank.Setup();
    try {
      for (int64_t step = 0;; ++step) {
        rank.Step(step);
        if (r == job.size() - 1) step_of_last.store(step);
      }
    } catch (const trainer::CollectiveLost&) {
      noticed.View<Clock::time_point>(0, static_cast<size_t>(job.size()))[static_cast<size_t>(r)] =
          Clock::now();
    }
  });
  const auto give_up = Soon();
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

Job WithUnevenShares(Job job) {
  const int n = job.shares();
  const int64_t batch = job.global_batch;
  job.share = [n, batch](int rank, int64_t step) -> int64_t {
    if (step % 3 == 0) return rank == n - 1 ? batch : 0;
    if (step % 3 == 1) return rank == 0 ? batch : 0;
    const auto part = [&](int r) { return 2 * batch * r / (n * n); };
    int64_t others = 0;
    for (int r = 0; r + 1 < n; ++r) others += part(r);
    return rank == n - 1 ? batch - others : part(rank);
  };
  return job;
}

Job WithMomentumAndPenalty(Job job) {
  job.optimizer = {
      .kind = trainer::OptimizerKind::kSgd, .learning_rate = 0.05, .momentum = 0.9, .nesterov = true};
  job.l2 = 1e-3;
  return job;
}

Job WithTheWholeRecipe(Job job) {
  job.optimizer = {.kind = trainer::OptimizerKind::kAdam,
                   .learning_rate = 0.02,
                   .schedule = {.kind = trainer::ScheduleKind::kCosine,
                                .warm_up_steps = 5,
                                .warm_up_from = 0.001,
                                .decay_steps = 40},
                   .weight_decay = 0.05,
                   .global_clip_norm = 0.5,
                   .average_momentum = 0.9};
  job.l2 = 1e-3;
  return job;
}

}  // namespace lockstep::testing
