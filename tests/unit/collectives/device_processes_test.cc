#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/unit/collectives/device_ranks.h"
#include "tests/unit/collectives/fork_store.h"
#include "tests/unit/collectives/processes.h"
#include "trainer/collectives/device_link.h"
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

struct Case {
  std::string name;
  DeviceOps ops;
  int ranks;
  int gpus;
  bool peer_access = true;
  size_t count = 100'003;
};

std::vector<float> SumOfRanks(int ranks, size_t count) {
  std::vector<float> sum = DeviceRank::Values(0, count);
  for (int r = 1; r < ranks; ++r) {
    const std::vector<float> values = DeviceRank::Values(r, count);
    for (size_t i = 0; i < count; ++i) sum[i] += values[i];
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
  const size_t count = given.count;
  const std::vector<float> want = SumOfRanks(given.ranks, count);
  ForkStore store;
  Processes processes(0, given.ranks, [&](int r) {
    DeviceRank rank({.ops = given.ops, .ranks = given.ranks, .gpus = given.gpus, .floats = count}, store, r);
    const bool staged = rank->description().find("host's memory") != std::string::npos;
    Demand(staged == !given.peer_access, rank->description());
    const auto expect_sums = [&] {
      const std::vector<float> got = rank.Take(count);
      for (size_t e = 0; e < count; ++e) {
        const float off = std::abs(got[e] - want[e]);
        Demand(given.ops == DeviceOps::kNccl ? off < 1e-5f : off == 0, "sum " + std::to_string(e));
      }
    };
    for (int i = 0; i < 3; ++i) {
      rank.Put(DeviceRank::Values(r, count));
      rank->AllReduce(rank.data(), count, rank.stream());
      expect_sums();
    }
    rank.Put(DeviceRank::Values(r, count));
    float* const mine = rank.data() + PartOnDevice(count, r, given.ranks).begin;
    rank->ReduceScatter(rank.data(), count, mine, rank.stream());
    rank->AllGatherParts(rank.data(), count, rank.stream());
    expect_sums();
    rank.Put(DeviceRank::Values(r, count));
    rank->Broadcast(rank.data(), count * sizeof(float), 1, rank.stream());
    Demand(rank.Take(count) == DeviceRank::Values(1, count), "broadcast");
    rank.Finish();
  });
  for (int r = 0; r < given.ranks; ++r) EXPECT_EQ(processes.Wait(static_cast<size_t>(r)), 0) << r;
}

// Questions and answers by turns, more of them than there are places, each another; and some without bytes.
TEST_P(DeviceProcessesTest, ALinkCarriesQuestionsAndAnswersInOrder) {
  constexpr size_t kPlaces = 3, kQuestions = 20, kFloats = 5000;
  const Case& given = GetParam();
  const auto bytes_of = [](size_t m) { return (m % 5 == 4 ? 0 : kFloats - m) * sizeof(float); };
  ForkStore store;
  Processes processes(0, 2, [&](int r) {
    const auto backend = AllGpus().entry->make_backend({.ordinal = r % given.gpus});
    const bool asks = r == 0;
    const auto link = AllGpus().communicators->link({.ops = given.ops,
                                                     .lower_rank = 0,
                                                     .asks = asks,
                                                     .shared_devices = given.gpus < 2,
                                                     .places = kPlaces,
                                                     .question_bytes = kFloats * sizeof(float),
                                                     .answer_bytes = kFloats * sizeof(float),
                                                     .store = &store,
                                                     .key = "link",
                                                     .deadline = In(std::chrono::seconds(30)),
                                                     .timeout = std::chrono::seconds(30)},
                                                    *backend);
    if (given.ops != DeviceOps::kNccl) {
      const bool staged = link->description().find("host's memory") != std::string::npos;
      Demand(staged == !given.peer_access, link->description());
    }
    std::vector<Buffer> out;
    for (size_t i = 0; i < kPlaces; ++i) out.emplace_back(backend->allocator(), kFloats * sizeof(float));
    const auto send = [&](size_t m) {
      const std::vector<float> values = DeviceRank::Values(static_cast<int>(2 * m) + r, kFloats);
      void* const place = out[m % kPlaces].data();
      backend->Upload(place, values.data(), bytes_of(m));
      link->Send(place, bytes_of(m));
    };
    const auto receive = [&](size_t m) {
      const void* const place = link->Receive(bytes_of(m));
      std::vector<float> got(bytes_of(m) / sizeof(float));
      backend->Download(got.data(), place, bytes_of(m));
      std::vector<float> want = DeviceRank::Values(static_cast<int>(2 * m) + 1 - r, kFloats);
      want.resize(got.size());
      Demand(got == want, "message " + std::to_string(m));
      backend->Zero(const_cast<void*>(place), bytes_of(m));  // it is this end's
    };
    for (size_t m = 0; m < kQuestions + kPlaces; ++m) {
      if (asks && m >= kPlaces) receive(m - kPlaces);
      if (m >= kQuestions) continue;
      if (!asks) receive(m);
      send(m);
    }
    backend->Synchronize();
    link->Check();
    link->Finish(In(std::chrono::seconds(30)));
  });
  for (size_t r = 0; r < 2; ++r) EXPECT_EQ(processes.Wait(r), 0) << r;
}

INSTANTIATE_TEST_SUITE_P(
    Ways, DeviceProcessesTest,
    ::testing::Values(
        Case{"HierarchicalCopy", DeviceOps::kHierarchicalCopy, 3, 3},
        Case{"HierarchicalCopyOnOneGpu", DeviceOps::kHierarchicalCopy, 4, 1},
        Case{"HierarchicalCopyThroughTheHost", DeviceOps::kHierarchicalCopy, 3, 3, false},
        Case{"HierarchicalCopyThroughTheHostInPieces", DeviceOps::kHierarchicalCopy, 2, 2, false, 1'100'003},
        Case{"ReductionToOneDevice", DeviceOps::kReductionToOneDevice, 2, 2},
        Case{"ReductionToOneDeviceThroughTheHost", DeviceOps::kReductionToOneDevice, 2, 2, false},
        Case{"Nccl", DeviceOps::kNccl, 3, 3}, Case{"NcclOnOneGpu", DeviceOps::kNccl, 2, 1}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::trainer::collectives
