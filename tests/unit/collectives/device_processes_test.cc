#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/unit/collectives/device_ranks.h"
#include "tests/unit/collectives/fork_store.h"
#include "tests/unit/collectives/processes.h"
#include "trainer/error.h"

// Ranks that are processes, as they are in a job: their memory is opened over CUDA IPC. The test itself never
// asks a device for anything, since what CUDA starts does not outlive a fork.
namespace lockstep::trainer::collectives {
namespace {

using ::lockstep::testing::AllGpus;
using ::lockstep::testing::DeviceRank;
using ::lockstep::testing::ForkStore;
using ::lockstep::testing::In;
using ::lockstep::testing::Processes;

constexpr size_t kCount = 100'003;

struct Case {
  std::string name;
  DeviceOps ops;
  int ranks;
  int gpus;
  bool peer_access = true;
};

std::vector<float> SumOfRanks(int ranks) {
  std::vector<float> sum = DeviceRank::Values(0, kCount);
  for (int r = 1; r < ranks; ++r) {
    const std::vector<float> values = DeviceRank::Values(r, kCount);
    for (size_t i = 0; i < kCount; ++i) sum[i] += values[i];
  }
  return sum;
}

void Demand(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

class DeviceProcessesTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (AllGpus().entry == nullptr) GTEST_SKIP() << AllGpus().why;
#ifdef LOCKSTEP_TEST_ON_GPU
    if (GetParam().gpus > 1) GTEST_SKIP() << "how many GPUs there are is not asked before the fork";
#endif
    ::setenv("CUDA_ON_HOST_PEER_ACCESS", GetParam().peer_access ? "1" : "0", 1);
  }
};

TEST_P(DeviceProcessesTest, AddInTheOrderOfRanksAndHaveTheRootsData) {
  const Case& given = GetParam();
  const std::vector<float> want = SumOfRanks(given.ranks);
  ForkStore store;
  Processes processes(0, given.ranks, [&](int r) {
    DeviceRank rank({.ops = given.ops, .ranks = given.ranks, .gpus = given.gpus}, store, r);
    const bool staged = rank->description().find("host's memory") != std::string::npos;
    Demand(staged == !given.peer_access, rank->description());
    for (int i = 0; i < 3; ++i) {
      rank.Put(DeviceRank::Values(r, kCount));
      rank->AllReduce(rank.data(), kCount, rank.stream());
      const std::vector<float> got = rank.Take(kCount);
      for (size_t e = 0; e < kCount; ++e) {
        const float off = std::abs(got[e] - want[e]);
        Demand(given.ops == DeviceOps::kNccl ? off < 1e-5f : off == 0, "sum " + std::to_string(e));
      }
    }
    rank.Put(DeviceRank::Values(r, kCount));
    rank->Broadcast(rank.data(), kCount * sizeof(float), 1, rank.stream());
    Demand(rank.Take(kCount) == DeviceRank::Values(1, kCount), "broadcast");
    rank.Finish();
  });
  for (int r = 0; r < given.ranks; ++r) EXPECT_EQ(processes.Wait(static_cast<size_t>(r)), 0) << r;
}

INSTANTIATE_TEST_SUITE_P(
    Ways, DeviceProcessesTest,
    ::testing::Values(Case{"HierarchicalCopy", DeviceOps::kHierarchicalCopy, 3, 3},
                      Case{"HierarchicalCopyOnOneGpu", DeviceOps::kHierarchicalCopy, 4, 1},
                      Case{"HierarchicalCopyThroughTheHost", DeviceOps::kHierarchicalCopy, 3, 3, false},
                      Case{"ReductionToOneDevice", DeviceOps::kReductionToOneDevice, 2, 2},
                      Case{"ReductionToOneDeviceThroughTheHost", DeviceOps::kReductionToOneDevice, 2, 2,
                           false},
                      Case{"Nccl", DeviceOps::kNccl, 3, 3}, Case{"NcclOnOneGpu", DeviceOps::kNccl, 2, 1}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::trainer::collectives
