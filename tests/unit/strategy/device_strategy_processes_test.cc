#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

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
  bool peer_access = true;
};

class OnGpus : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (AllGpus().entry == nullptr) GTEST_SKIP() << AllGpus().why;
#ifdef LOCKSTEP_TEST_ON_GPU
    if (GetParam().gpus > 1) GTEST_SKIP() << "how many GPUs there are is not asked before the fork";
#endif
    ::setenv("CUDA_ON_HOST_PEER_ACCESS", GetParam().peer_access ? "1" : "0", 1);
  }
};

class DeviceStrategyProcessesTest : public OnGpus {};

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

void ExpectAKilledOneIsNamedByTheOthersSoon(const Job& job) {
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

TEST_P(DeviceStrategyProcessesTest, AKilledOneIsNamedByTheOthersSoon) {
  ExpectAKilledOneIsNamedByTheOthersSoon(GpuJob(GetParam().job, GetParam().gpus));
}

INSTANTIATE_TEST_SUITE_P(
    Ways, DeviceStrategyProcessesTest,
    ::testing::Values(
        Case{"HierarchicalCopy3", {.local_size = 3, .ops = CrossDeviceOps::kHierarchicalCopy}, 3},
        Case{"TwoOnOneGpu", {.local_size = 2}, 1},
        Case{"ReductionToOneDevice2", {.local_size = 2, .ops = CrossDeviceOps::kReductionToOneDevice}, 1},
        Case{"Nccl3", {.local_size = 3, .ops = CrossDeviceOps::kNccl}, 3},
        Case{"ShardedHierarchicalCopy3",
             {.local_size = 3, .ops = CrossDeviceOps::kHierarchicalCopy, .shard = Shard::kOptimizer},
             3},
        Case{"ShardedNccl2", {.local_size = 2, .ops = CrossDeviceOps::kNccl, .shard = Shard::kOptimizer}, 2}),
    [](const auto& info) { return info.param.name; });

class DevicePipelineProcessesTest : public OnGpus {};

TEST_P(DevicePipelineProcessesTest, GiveTheLossesOfOneProcessor) {
  constexpr size_t kSteps = 30;
  const Job job = GpuJob(GetParam().job, GetParam().gpus);
  const auto results = SharedSegment::Create("losses", kSteps * sizeof(double));
  const std::span<double> losses = results.View<double>(0, kSteps);
  ForkStore store;
  {
    Processes processes(0, job.size(), [&](int r) {
      JobRank rank(job, store, nullptr, r);
      rank.Setup();
      for (size_t step = 0; step < kSteps; ++step) {
        const double loss = rank.Step(static_cast<int64_t>(step)).loss;
        if (r == job.size() - 1) losses[step] = loss;
      }
      rank.strategy().Finish();
    });
    for (int r = 0; r < job.size(); ++r) EXPECT_EQ(processes.Wait(static_cast<size_t>(r)), 0) << r;
  }
  const std::vector<double> want = ::lockstep::testing::Train({.kind = Kind::kOneDevice}, kSteps).losses[0];
  for (size_t step = 0; step < kSteps; ++step) EXPECT_NEAR(losses[step], want[step], 1e-4 * want[step]);
}

TEST_P(DevicePipelineProcessesTest, AKilledOneIsNamedByTheOthersSoon) {
  ExpectAKilledOneIsNamedByTheOthersSoon(GpuJob(GetParam().job, GetParam().gpus));
}

Job Stages(int ranks, int stages, CrossDeviceOps ops, PipelineSchedule schedule) {
  std::vector<LayerRange> parts{{0, 0}, {1, 2}};
  if (stages == 3) parts = {{0, 0}, {1, 1}, {2, 2}};
  return {.local_size = ranks,
          .kind = Kind::kPipeline,
          .ops = ops,
          .pipeline = {.stages = parts, .micro_batches = 5, .schedule = schedule}};
}

INSTANTIATE_TEST_SUITE_P(
    Ways, DevicePipelineProcessesTest,
    ::testing::Values(
        Case{"NcclThreeStages", Stages(3, 3, CrossDeviceOps::kNccl, PipelineSchedule::kOneForwardOneBackward),
             3},
        Case{"PeersThreeStages",
             Stages(3, 3, CrossDeviceOps::kHierarchicalCopy, PipelineSchedule::kOneForwardOneBackward), 3},
        Case{"TwoPipelinesOnOneGpu", Stages(4, 2, CrossDeviceOps::kAuto, PipelineSchedule::kGPipe), 1},
        Case{"ThroughTheHost", Stages(4, 2, CrossDeviceOps::kHierarchicalCopy, PipelineSchedule::kGPipe), 4,
             /*peer_access=*/false}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::trainer::strategy
