#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "tests/unit/collectives/device_ranks.h"
#include "trainer/error.h"

// Sums over GPUs, the ranks threads of the test.
namespace lockstep::trainer::collectives {
namespace {

using ::lockstep::testing::AllGpus;
using ::lockstep::testing::DeviceRank;
using ::lockstep::testing::In;
using ::lockstep::testing::Meeting;
using ::lockstep::testing::RunRanks;
using ::lockstep::testing::Soon;
using ::lockstep::testing::WhyNotSoMany;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Case {
  DeviceOps ops;
  int ranks;
  int gpus;
};

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  return std::string(DeviceOpsName(info.param.ops)) + std::to_string(info.param.ranks) + "On" +
         std::to_string(info.param.gpus);
}

class DeviceCommunicatorTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNotSoMany(GetParam().gpus); !why.empty()) GTEST_SKIP() << why;
  }

  // Runs on every rank, and sees that nobody throws.
  void OnAll(const std::function<void(DeviceRank&)>& work) {
    Meeting meeting;
    const Case& given = GetParam();
    const auto thrown = RunRanks(given.ranks, [&](int r) {
      DeviceRank rank(
          {.ops = given.ops, .ranks = given.ranks, .gpus = given.gpus, .segments = &meeting.segments},
          meeting.store, r);
      work(rank);
      rank.Finish();
    });
    EXPECT_THAT(thrown, Each(IsEmpty()));
  }
};

TEST_P(DeviceCommunicatorTest, AddsInTheOrderOfRanksWhateverTheSizeAndPlace) {
  OnAll([](DeviceRank& rank) {
    for (const size_t count : {1, 3, 16, 1000, 4097, 100'000}) {
      for (const size_t offset : {0, 16, 5}) {
        std::vector<float> mine = DeviceRank::Values(rank.rank(), offset + count);
        std::vector<float> want = mine;
        for (size_t i = offset; i < want.size(); ++i) want[i] = 0;
        for (int r = 0; r < rank.size(); ++r) {
          const std::vector<float> of_rank = DeviceRank::Values(r, offset + count);
          for (size_t i = offset; i < want.size(); ++i) want[i] = r == 0 ? of_rank[i] : want[i] + of_rank[i];
        }
        rank.Put(mine);
        rank->AllReduce(rank.data() + offset, count, rank.stream());
        const std::vector<float> got = rank.Take(offset + count);
        if (GetParam().ops == DeviceOps::kNccl) {  // its order is its own
          for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << i;
        } else {
          ASSERT_EQ(got, want) << count << " at " << offset;
        }
      }
    }
  });
}

TEST_P(DeviceCommunicatorTest, GivesTheSameBitsOnAllRanks) {
  std::vector<std::vector<float>> sums(static_cast<size_t>(GetParam().ranks));
  OnAll([&](DeviceRank& rank) {
    rank.Put(DeviceRank::Values(rank.rank(), 50'000));
    rank->AllReduce(rank.data(), 50'000, rank.stream());
    sums[static_cast<size_t>(rank.rank())] = rank.Take(50'000);
  });
  EXPECT_THAT(sums, Each(sums[0]));
}

TEST_P(DeviceCommunicatorTest, OperationsFollowOneAnotherWithoutTheHost) {
  OnAll([](DeviceRank& rank) {
    rank.Put(std::vector<float>(1000, 1));
    for (int i = 0; i < 8; ++i) rank->AllReduce(rank.data(), 1000, rank.stream());
    EXPECT_THAT(rank.Take(1000), Each(std::pow(static_cast<float>(rank.size()), 8.0f)));
  });
}

TEST_P(DeviceCommunicatorTest, ReportsAddUpExactly) {
  OnAll([](DeviceRank& rank) {
    const int64_t large = int64_t{1} << 60, n = rank.size();
    DeviceReport report{
        .loss_sum = 0.5 + rank.rank(), .correct = large / n, .samples = 7, .stop = rank.rank()};
    rank.backend().Upload(rank.data(), &report, sizeof report);
    rank->AllReduce(reinterpret_cast<DeviceReport*>(rank.data()), rank.stream());
    rank.backend().Synchronize();
    rank.backend().Download(&report, rank.data(), sizeof report);
    EXPECT_EQ(report.loss_sum, 0.5 * static_cast<double>(n) + static_cast<double>(n * (n - 1) / 2));
    EXPECT_EQ(report.correct, large / n * n);
    EXPECT_EQ(report.samples, 7 * n);
    EXPECT_EQ(report.stop, n * (n - 1) / 2);
  });
}

TEST_P(DeviceCommunicatorTest, EveryRankHasWhatTheRootHad) {
  OnAll([](DeviceRank& rank) {
    for (int root = 0; root < rank.size(); ++root) {
      rank.Put(DeviceRank::Values(rank.rank() + 10 * root, 30'001));
      rank->Broadcast(rank.data(), 30'001 * sizeof(float), root, rank.stream());
      ASSERT_EQ(rank.Take(30'001), DeviceRank::Values(11 * root, 30'001));
    }
  });
}

// Where the part of each is, and elsewhere.
TEST_P(DeviceCommunicatorTest, EveryRankGetsItsPartOfTheSumAndOfAllParts) {
  OnAll([](DeviceRank& rank) {
    const Buffer apart(rank.backend().allocator(), DeviceRank::kFloats * sizeof(float));
    for (const size_t count : {1, 15, 16, 1000, 4097, 100'000}) {
      for (const size_t offset : {0, 64}) {
        for (const bool in_place : {true, false}) {
          std::vector<float> sum(count, 0);
          for (int r = 0; r < rank.size(); ++r) {
            const std::vector<float> of_rank = DeviceRank::Values(r, offset + count);
            for (size_t i = 0; i < count; ++i)
              sum[i] = r == 0 ? of_rank[offset + i] : sum[i] + of_rank[offset + i];
          }
          const auto expect = [&](size_t i, float got) {
            ASSERT_NEAR(got, sum[i], GetParam().ops == DeviceOps::kNccl ? 1e-5 : 0) << i;
          };
          const Range part = PartOnDevice(count, rank.rank(), rank.size());
          rank.Put(DeviceRank::Values(rank.rank(), offset + count));
          float* const data = rank.data() + offset;
          float* const mine = in_place ? data + part.begin : apart.as<float>();
          rank->ReduceScatter(data, count, mine, rank.stream());
          std::vector<float> got(part.size());
          rank.backend().Synchronize();
          rank.backend().Download(got.data(), mine, part.size() * sizeof(float));
          for (size_t i = 0; i < got.size(); ++i) expect(part.begin + i, got[i]);

          if (!in_place) rank.backend().CopyAsync(data + part.begin, mine, part.size() * sizeof(float));
          rank->AllGatherParts(data, count, rank.stream());
          const std::vector<float> all = rank.Take(offset + count);
          for (size_t i = 0; i < count; ++i) expect(i, all[offset + i]);
          const std::vector<float> before = DeviceRank::Values(rank.rank(), offset);
          EXPECT_TRUE(std::equal(before.begin(), before.end(), all.begin())) << "nothing in front is touched";
        }
      }
    }
  });
}

TEST(PartOnDeviceTest, PartsFollowOneAnotherOnSixteenBytes) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{4097}, size_t{1} << 22}) {
    for (const int size : {1, 2, 3, 7, 64}) {
      size_t end = 0;
      for (int r = 0; r < size; ++r) {
        const Range part = PartOnDevice(count, r, size);
        EXPECT_EQ(part.begin, end);
        EXPECT_EQ(part.begin % 4, 0);
        if (r + 1 < size) {
          EXPECT_EQ(part.size(), PartOnDevice(count, 0, size).size());
        }
        end = part.end;
      }
      EXPECT_EQ(end, count);
    }
  }
}

TEST_P(DeviceCommunicatorTest, AGroupThatNotAllHaveJoinedSaysWhoIsMissing) {
  Meeting meeting;
  const Case& given = GetParam();
  const auto thrown = RunRanks(given.ranks - 1, [&](int r) {
    EXPECT_THROW(DeviceRank({.ops = given.ops,
                             .ranks = given.ranks,
                             .gpus = given.gpus,
                             .segments = &meeting.segments,
                             .patience = std::chrono::milliseconds(300)},
                            meeting.store, r),
                 RendezvousFailed);
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

TEST_P(DeviceCommunicatorTest, AnAbortEndsWhatIsUnderWayAndAllThatFollows) {
  Meeting meeting;
  const Case& given = GetParam();
  std::atomic<int> ended = 0;
  const auto thrown = RunRanks(given.ranks, [&](int r) {
    DeviceRank rank(
        {.ops = given.ops, .ranks = given.ranks, .gpus = given.gpus, .segments = &meeting.segments},
        meeting.store, r);
    rank.Put(std::vector<float>(1000, 1));
    rank->AllReduce(rank.data(), 1000, rank.stream());
    rank.backend().Synchronize();
    if (r == given.ranks - 1) {  // stays, and does nothing
      while (ended.load() < given.ranks - 1) std::this_thread::yield();
      return;
    }
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      rank->Abort();
    });
    try {
      rank->AllReduce(rank.data(), 1000, rank.stream());
      while (true) rank->Check();
    } catch (const CollectiveLost&) {
    }
    other.join();
    EXPECT_THROW(rank->Check(), CollectiveLost);
    EXPECT_THROW(rank->AllReduce(rank.data(), 1000, rank.stream()), CollectiveLost);
    rank.backend().Synchronize();  // nothing holds the stream any more
    ended.fetch_add(1);
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(
    Ways, DeviceCommunicatorTest,
    ::testing::Values(Case{DeviceOps::kHierarchicalCopy, 2, 2}, Case{DeviceOps::kHierarchicalCopy, 3, 3},
                      Case{DeviceOps::kHierarchicalCopy, 4, 1}, Case{DeviceOps::kReductionToOneDevice, 2, 1},
                      Case{DeviceOps::kReductionToOneDevice, 4, 4}, Case{DeviceOps::kNccl, 2, 2},
                      Case{DeviceOps::kNccl, 4, 4}, Case{DeviceOps::kNccl, 2, 1}),
    CaseName);

TEST(PeerCommunicatorTest, RefusesMemoryThatWasNotRegistered) {
  if (const std::string why = WhyNotSoMany(1); !why.empty()) GTEST_SKIP() << why;
  Meeting meeting;
  const auto thrown = RunRanks(2, [&](int r) {
    DeviceRank rank(
        {.ops = DeviceOps::kHierarchicalCopy, .ranks = 2, .gpus = 1, .segments = &meeting.segments},
        meeting.store, r);
    const Buffer other(rank.backend().shareable(), 64);
    EXPECT_THROW(rank->AllReduce(other.as<float>(), 16, rank.stream()), Unsupported);
    EXPECT_THROW(rank->AllReduce(rank.data(), DeviceRank::kFloats + 1, rank.stream()), Unsupported);
    EXPECT_FALSE(rank->recordable());
    rank.Finish();
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

TEST(PeerCommunicatorTest, IsForOneMachine) {
  if (const std::string why = WhyNotSoMany(1); !why.empty()) GTEST_SKIP() << why;
  lockstep::testing::InMemoryStore store;
  const auto backend = AllGpus().entry->make_backend({});
  const DeviceCommunicatorOptions options{.ops = DeviceOps::kReductionToOneDevice,
                                          .size = 2,
                                          .local_size = 1,
                                          .store = &store,
                                          .key = "x",
                                          .deadline = Soon()};
  EXPECT_THROW(AllGpus().communicators->connect(options, *backend), Unsupported);
}

#ifndef LOCKSTEP_TEST_ON_GPU
// With what the stand-in says its version is.
class NcclVersionTest : public ::testing::Test {
 protected:
  ~NcclVersionTest() override { ::unsetenv("NCCL_ON_HOST_VERSION"); }
  std::vector<std::string> Connect(const char* version, int ranks, int gpus) {
    ::setenv("NCCL_ON_HOST_VERSION", version, 1);
    Meeting meeting;
    return RunRanks(ranks, [&](int r) {
      DeviceRank rank(
          {.ops = DeviceOps::kNccl, .ranks = ranks, .gpus = gpus, .patience = std::chrono::seconds(10)},
          meeting.store, r);
      rank.Finish();
    });
  }
};

TEST_F(NcclVersionTest, AnOldOneDoesNotShareAGpuAndSaysSo) {
  if (const std::string why = WhyNotSoMany(2); !why.empty()) GTEST_SKIP() << why;
  EXPECT_THAT(Connect("22809", 2, 1),
              Each(::testing::AllOf(HasSubstr("NCCL 2.28.9 does not let several ranks"),
                                    HasSubstr("HierarchicalCopy would be right"))));
  EXPECT_THAT(Connect("22809", 2, 2), Each(IsEmpty()));
  EXPECT_THAT(Connect("23000", 2, 1), Each(IsEmpty()));
}
#endif

}  // namespace
}  // namespace lockstep::trainer::collectives
