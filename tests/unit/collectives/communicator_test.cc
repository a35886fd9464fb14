#include "trainer/collectives/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <random>

#include "tests/unit/collectives/ranks.h"
#include "trainer/error.h"

namespace lockstep::trainer::collectives {
namespace {

using ::lockstep::testing::Connect;
using ::lockstep::testing::In;
using ::lockstep::testing::Meeting;
using ::lockstep::testing::Rank;
using ::lockstep::testing::RunRanks;
using ::lockstep::testing::Soon;
using ::lockstep::testing::Transport;
using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Around the sizes at which the ways of doing it change, and odd ones.
constexpr size_t kSizes[] = {0, 1, 7, 64, 1023, 2048, 2049, 65'536, 65'537, 300'001};

std::vector<float> Data(size_t count, int rank) {
  std::mt19937 random(static_cast<unsigned>(rank * 7919 + 1));
  std::uniform_real_distribution<float> value(-1, 1);
  std::vector<float> data(count);
  for (float& x : data) x = value(random);
  return data;
}

std::vector<double> SumInDouble(size_t count, int ranks) {
  std::vector<double> sum(count);
  for (int r = 0; r < ranks; ++r) {
    const std::vector<float> data = Data(count, r);
    for (size_t i = 0; i < count; ++i) sum[i] += static_cast<double>(data[i]);
  }
  return sum;
}

// What adding float by float in the order of ranks gives, exactly.
std::vector<float> SumInOrderOfRanks(size_t count, int ranks) {
  std::vector<float> sum = Data(count, 0);
  for (int r = 1; r < ranks; ++r) {
    const std::vector<float> data = Data(count, r);
    for (size_t i = 0; i < count; ++i) sum[i] += data[i];
  }
  return sum;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

struct Case {
  Transport transport;
  int ranks;
};

class CommunicatorTest : public ::testing::TestWithParam<Case> {
 protected:
  int ranks() const { return GetParam().ranks; }
  Rank Join(int rank) { return Connect(GetParam().transport, meeting_, rank, ranks()); }
  // Each rank's body, all of which must come through.
  void Run(const std::function<void(int, Communicator&)>& body) {
    EXPECT_THAT(RunRanks(ranks(),
                         [&](int r) {
                           const Rank rank = Join(r);
                           body(r, *rank.communicator);
                           rank->Barrier(Soon());
                         }),
                Each(IsEmpty()));
  }

  Meeting meeting_;
};

TEST_P(CommunicatorTest, AllReduceGivesEveryRankTheSumInTheOrderOfRanks) {
  Run([&](int r, Communicator& communicator) {
    for (const size_t size : kSizes) {
      std::vector<float> data = Data(size, r);
      communicator.AllReduce(std::span(data), Soon());
      EXPECT_TRUE(SameBits(data, SumInOrderOfRanks(size, ranks()))) << size;
      const std::vector<double> reference = SumInDouble(size, ranks());
      for (size_t i = 0; i < size; ++i)
        ASSERT_NEAR(data[i], reference[i], 1e-6 * ranks()) << size << " at " << i;
    }
  });
}

TEST_P(CommunicatorTest, AllReduceOfDoublesKeepsTheirPrecision) {
  Run([&](int r, Communicator& communicator) {
    for (const size_t size : {size_t{3}, size_t{5000}, size_t{100'001}}) {
      std::vector<double> data(size, 1e-12 * (r + 1));
      data[0] = 1e9;
      communicator.AllReduce(std::span(data), Soon());
      EXPECT_DOUBLE_EQ(data[0], 1e9 * ranks());
      EXPECT_NEAR(data[size - 1] / (1e-12 * ranks() * (ranks() + 1) / 2), 1, 1e-14);
    }
  });
}

TEST_P(CommunicatorTest, ReduceGivesTheRootTheSumAndLeavesTheOthersAlone) {
  Run([&](int r, Communicator& communicator) {
    for (const size_t size : kSizes) {
      const int root = static_cast<int>(size % static_cast<size_t>(ranks()));
      std::vector<float> data = Data(size, r);
      communicator.Reduce(data, root, Soon());
      EXPECT_TRUE(SameBits(data, r == root ? SumInOrderOfRanks(size, ranks()) : Data(size, r))) << size;
    }
  });
}

TEST_P(CommunicatorTest, BroadcastGivesEveryRankTheRootsData) {
  Run([&](int r, Communicator& communicator) {
    for (const size_t size : kSizes) {
      const int root = static_cast<int>((size + 1) % static_cast<size_t>(ranks()));
      std::vector<float> data = Data(size, r);
      communicator.Broadcast(std::as_writable_bytes(std::span(data)), root, Soon());
      EXPECT_TRUE(SameBits(data, Data(size, root))) << size;
    }
  });
}

TEST_P(CommunicatorTest, AllGatherGivesEveryRanksDataInOrder) {
  Run([&](int r, Communicator& communicator) {
    for (const size_t size : kSizes) {
      const std::vector<float> mine = Data(size, r);
      std::vector<float> all(size * static_cast<size_t>(ranks()));
      communicator.AllGather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), Soon());
      for (int from = 0; from < ranks(); ++from) {
        EXPECT_TRUE(
            SameBits(std::span(all).subspan(size * static_cast<size_t>(from), size), Data(size, from)))
            << size;
      }
    }
  });
}

TEST_P(CommunicatorTest, ReduceScatterGivesEachRankItsPartOfTheSum) {
  Run([&](int r, Communicator& communicator) {
    for (const size_t size : kSizes) {
      std::vector<float> data = Data(size, r);
      communicator.ReduceScatter(data, Soon());
      const Range part = PartOf(size, r, ranks());
      const std::vector<float> sum = SumInOrderOfRanks(size, ranks());
      EXPECT_TRUE(SameBits(std::span(data).subspan(part.begin, part.size()),
                           std::span(sum).subspan(part.begin, part.size())))
          << size;
    }
  });
}

TEST_P(CommunicatorTest, AllGatherPartsBringsEveryRanksPartToAll) {
  Run([&](int r, Communicator& communicator) {
    for (const size_t size : kSizes) {
      const std::vector<float> whole = Data(size, 0);
      const Range part = PartOf(size, r, ranks());
      std::vector<float> data(size, -7);
      std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(part.begin), part.size(),
                  data.begin() + static_cast<std::ptrdiff_t>(part.begin));
      communicator.AllGatherParts(data, Soon());
      EXPECT_TRUE(SameBits(data, whole)) << size;
    }
  });
}

TEST_P(CommunicatorTest, CopyPartsOnBringsEveryRanksPartToTheNextAlone) {
  Run([&](int r, Communicator& communicator) {
    for (const size_t size : kSizes) {
      const std::vector<float> whole = Data(size, 0);
      std::vector<float> data(size, -7), wanted(size, -7);
      for (const int owner : {r, (r + ranks() - 1) % ranks()}) {
        const Range part = PartOf(size, owner, ranks());
        for (size_t i = part.begin; i < part.end; ++i) {
          wanted[i] = whole[i];
          if (owner == r) data[i] = whole[i];
        }
      }
      communicator.CopyPartsOn(data, Soon());
      EXPECT_TRUE(SameBits(data, wanted)) << size;
    }
  });
}

TEST_P(CommunicatorTest, MessagesBetweenTwoRanksComeWholeAndInOrder) {
  if (ranks() < 2) GTEST_SKIP() << "needs a peer";
  Run([&](int r, Communicator& communicator) {
    const int next = (r + 1) % ranks(), previous = (r + ranks() - 1) % ranks();
    for (const size_t size : kSizes) {
      const std::vector<float> sent = Data(size, r);
      std::vector<float> received(size);
      const auto send = [&] { communicator.Send(std::as_bytes(std::span(sent)), next, Soon()); };
      const auto receive = [&] {
        communicator.Recv(std::as_writable_bytes(std::span(received)), previous, Soon());
      };
      // One rank receives first, or a ring of large sends would wait for itself.
      if (r == 0) {
        receive();
        send();
      } else {
        send();
        receive();
      }
      EXPECT_TRUE(SameBits(received, Data(size, previous))) << size;
    }
  });
}

TEST_P(CommunicatorTest, NobodyLeavesABarrierBeforeAllHaveCome) {
  std::atomic<int> came = 0;
  Run([&](int, Communicator& communicator) {
    for (int round = 1; round <= 50; ++round) {
      came.fetch_add(1);
      communicator.Barrier(Soon());
      EXPECT_GE(came.load(), round * ranks());
    }
  });
}

TEST_P(CommunicatorTest, ManyCallsOfManyKindsKeepInStep) {
  Run([&](int r, Communicator& communicator) {
    std::mt19937 random(5);
    for (int i = 0; i < 60; ++i) {
      const size_t size = random() % 5000;
      std::vector<float> data = Data(size, r);
      if (random() % 3 == 0) {
        communicator.Broadcast(std::as_writable_bytes(std::span(data)), 0, Soon());
        ASSERT_TRUE(SameBits(data, Data(size, 0))) << i;
      } else {
        communicator.AllReduce(std::span(data), Soon());
        ASSERT_TRUE(SameBits(data, SumInOrderOfRanks(size, ranks()))) << i;
      }
    }
  });
}

TEST_P(CommunicatorTest, AMissingRankIsNamedAtTheDeadline) {
  if (ranks() < 2) GTEST_SKIP() << "needs a peer";
  std::atomic<int> through = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto thrown = RunRanks(ranks(), [&](int r) {
    const Rank rank = Join(r);
    rank->Barrier(Soon());
    std::vector<float> data(1000);
    if (r == ranks() - 1) {  // stays, and does nothing
      while (through.load() < ranks() - 1) std::this_thread::yield();
      return;
    }
    try {
      rank->AllReduce(std::span(data), In(milliseconds(300)));
    } catch (const CollectiveLost&) {
      EXPECT_THROW(rank->Barrier(Soon()), CollectiveLost) << "is dead from then on";
      through.fetch_add(1);
      throw;
    }
    through.fetch_add(1);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  const std::string missing = "rank " + std::to_string(ranks() - 1);
  // Whose deadline strikes first cuts the others off; with shared memory they know of whom it was.
  int naming = 0;
  for (int r = 0; r < ranks() - 1; ++r) {
    EXPECT_THAT(thrown[static_cast<size_t>(r)], HasSubstr("all-reduce"));
    naming += thrown[static_cast<size_t>(r)].find(missing) != std::string::npos;
  }
  EXPECT_GE(naming, GetParam().transport == Transport::kLocal ? ranks() - 1 : 1);
  EXPECT_THAT(thrown.back(), IsEmpty());
}

TEST_P(CommunicatorTest, AbortEndsAPendingCall) {
  if (ranks() < 2) GTEST_SKIP() << "needs a peer";
  const auto thrown = RunRanks(ranks(), [&](int r) {
    const Rank rank = Join(r);
    rank->Barrier(Soon());
    if (r != 0) {
      std::vector<float> data(1000);
      return rank->AllReduce(std::span(data), Soon());
    }
    std::thread other([&] { rank->Abort(); });
    std::vector<float> data(1000);
    EXPECT_THROW(rank->Recv(std::as_writable_bytes(std::span(data)), 1, Soon()), CollectiveLost);
    other.join();
  });
  for (int r = 1; r < ranks(); ++r) EXPECT_THAT(thrown[static_cast<size_t>(r)], HasSubstr("all-reduce")) << r;
}

INSTANTIATE_TEST_SUITE_P(Transports, CommunicatorTest,
                         ::testing::Values(Case{Transport::kLocal, 1}, Case{Transport::kLocal, 2},
                                           Case{Transport::kLocal, 3}, Case{Transport::kLocal, 8},
                                           Case{Transport::kGloo, 1}, Case{Transport::kGloo, 2},
                                           Case{Transport::kGloo, 3}, Case{Transport::kGloo, 4}),
                         [](const auto& info) {
                           return std::string(info.param.transport == Transport::kLocal ? "Local" : "Gloo") +
                                  std::to_string(info.param.ranks);
                         });

TEST(PartOfTest, CutsIntoNeighboursOfNearlyOneSize) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{5}, size_t{16}, size_t{1'000'003}}) {
    for (const int parts : {1, 2, 3, 7}) {
      size_t at = 0;
      for (int p = 0; p < parts; ++p) {
        const Range part = PartOf(count, p, parts);
        EXPECT_EQ(part.begin, at);
        EXPECT_LE(part.size(), count / static_cast<size_t>(parts) + 1);
        EXPECT_GE(part.size(), count / static_cast<size_t>(parts));
        at = part.end;
      }
      EXPECT_EQ(at, count);
    }
  }
}

}  // namespace
}  // namespace lockstep::trainer::collectives
