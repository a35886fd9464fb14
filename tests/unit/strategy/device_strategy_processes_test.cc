#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "tests/unit/collectives/fork_store.h"
#include "tests/unit/collectives/processes.h"
#include "tests/unit/strategy/device_job.h"
#include "trainer/collectives/local/shared_segment.h"
#include "trainer/error.h"

// Ranks on GPUs that are processes, as in a job. The test itself never asks a device for anything, since what
// CUDA starts does not outlive a fork.
namespace lockstep::trainer::strategy {
namespace {

using collectives::SharedSegment;
using ::lockstep::testing::AllGpus;
using ::lockstep::testing::ForkStore;
using ::lockstep::testing::GpuJob;
using ::lockstep::testing::Job;
using ::lockstep::testing::JobRank;
using ::lockstep::testing::Processes;

struct Case {
  std::string name;
  Job job;
  int gpus;
};

class DeviceStrategyProcessesTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (AllGpus().entry == nullptr) GTEST_SKIP() << AllGpus().why;
#ifdef LOCKSTEP_TEST_ON_GPU
    if (GetParam().gpus > 1) GTEST_SKIP() << "how many GPUs there are is not asked before the fork";
#endif
  }
};

TEST_P(DeviceStrategyProcessesTest, HaveTheSameParametersAfterTheSameSteps) {
  const Job job = GpuJob(GetParam().job, GetParam().gpus);
  constexpr size_t kMost = 1 << 16;
  const auto results =
      SharedSegment::Create("results", kMost * sizeof(float) * static_cast<size_t>(job.size()));
  ForkStore store;
  Processes processes(0, job.size(), [&](int r) {
    JobRank rank(job, store, nullptr, r);
    rank.Setup();
    double first = 0, last = 0;
    for (int64_t step = 0; step < 30; ++step) {
      last = rank.Step(step).loss;
      if (step == 0) first = last;
    }
    if (!(last < first / 2)) throw std::runtime_error("nothing was learned");
    const auto result = results.View<float>(kMost * sizeof(float) * static_cast<size_t>(r), kMost);
    std::copy(rank.strategy().parameters().begin(), rank.strategy().parameters().end(), result.begin());
    rank.strategy().Finish();
  });
  for (int r = 0; r < job.size(); ++r) EXPECT_EQ(processes.Wait(static_cast<size_t>(r)), 0) << r;
  const auto all = results.View<float>(0, kMost * static_cast<size_t>(job.size()));
  EXPECT_NE(all[0], 0);
  for (size_t i = kMost; i < all.size(); ++i) ASSERT_EQ(all[i], all[i % kMost]) << i;
}

TEST_P(DeviceStrategyProcessesTest, AKilledOneIsNamedByTheOthersSoon) {
  const Job job = GpuJob(GetParam().job, GetParam().gpus);
  using Clock = std::chrono::steady_clock;
  const auto ranks = static_cast<size_t>(job.size());
  const auto noticed = SharedSegment::Create("noticed", sizeof(Clock::time_point) * ranks);
  const auto steps = SharedSegment::Create("steps", sizeof(std::atomic<int64_t>));
  std::atomic<int64_t>& step_of_last = steps.View<std::atomic<int64_t>>(0, 1)[0];
  ForkStore store;
  Processes processes(0, job.size(), [&](int r) {
    // The stream of a survivor may be stuck behind the dead rank's work for good: nothing is tidied up.
    auto& rank = *new JobRank(job, store, nullptr, r);
    rank.Setup();
    try {
      for (int64_t step = 0;; ++step) {
        rank.Step(step);
        if (r == job.size() - 1) step_of_last.store(step);
      }
    } catch (const CollectiveLost& lost) {
      const std::string dead = "rank " + std::to_string(job.size() - 1) + " (pid ";
      if (std::string(lost.what()).find(dead) == std::string::npos) throw;
      noticed.View<Clock::time_point>(0, ranks)[static_cast<size_t>(r)] = Clock::now();
    }
  });
  const auto give_up = lockstep::testing::Soon();
  while (step_of_last.load() < 10 && Clock::now() < give_up) std::this_thread::yield();
  ASSERT_GE(step_of_last.load(), 10);
  const auto killed = Clock::now();
  processes.Kill(ranks - 1);
  for (size_t r = 0; r + 1 < ranks; ++r) {
    EXPECT_EQ(processes.Wait(r), 0) << r;
    EXPECT_LT(noticed.View<Clock::time_point>(0, ranks)[r] - killed, std::chrono::seconds(5)) << r;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, DeviceStrategyProcessesTest,
    ::testing::Values(
        Case{"HierarchicalCopy3", {.local_size = 3, .ops = CrossDeviceOps::kHierarchicalCopy}, 3},
        Case{"TwoOnOneGpu", {.local_size = 2}, 1},
        Case{"ReductionToOneDevice2", {.local_size = 2, .ops = CrossDeviceOps::kReductionToOneDevice}, 1},
        Case{"Nccl3", {.local_size = 3, .ops = CrossDeviceOps::kNccl}, 3}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::trainer::strategy
