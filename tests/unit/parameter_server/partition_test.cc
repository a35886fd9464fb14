#include "trainer/parameter_server/partition.h"

#include <gtest/gtest.h>

#include <numeric>

namespace lockstep::trainer::parameter_server {
namespace {

ParameterLayout LayoutOf(const std::vector<int64_t>& sizes) {
  ParameterLayout layout;
  for (const int64_t size : sizes) {
    layout.variables.push_back({.name = "v", .shape = Shape({size}), .offset = layout.total, .size = size});
    layout.total += (size + kVariablePadding - 1) / kVariablePadding * kVariablePadding;
  }
  return layout;
}

using Pieces = std::vector<std::vector<Piece>>;

struct Case {
  const char* name;
  std::vector<int64_t> sizes;
  int servers;
  Spread spread;
  Pieces expected;
};

class PartitionTest : public ::testing::TestWithParam<Case> {};

TEST_P(PartitionTest, Spreads) {
  const Case& c = GetParam();
  EXPECT_EQ(Partition(LayoutOf(c.sizes), c.servers, c.spread), c.expected);
}

INSTANTIATE_TEST_SUITE_P(
    Table, PartitionTest,
    ::testing::Values(
        Case{"OneServerHasAllInOnePiece", {100, 16, 30}, 1, Spread::kLeastLoaded, {{{0, 160}}}},
        // 112 floats, 16, 32: the largest first, then to the emptier one.
        Case{"TheEmptiestIsNext", {100, 16, 30}, 2, Spread::kLeastLoaded, {{{0, 112}}, {{112, 160}}}},
        Case{"InTurns", {100, 16, 30}, 2, Spread::kRoundRobin, {{{0, 112}, {128, 160}}, {{112, 128}}}},
        Case{"EqualOnesInOrder",
             {16, 16, 16, 16},
             2,
             Spread::kLeastLoaded,
             {{{0, 16}, {32, 48}}, {{16, 32}, {48, 64}}}},
        Case{"MoreServersThanVariables", {16}, 3, Spread::kLeastLoaded, {{{0, 16}}, {}, {}}},
        Case{"AtTheLimitAVariableIsWhole",
             {kLargestWhole},
             2,
             Spread::kLeastLoaded,
             {{{0, kLargestWhole}}, {}}},
        Case{"AboveItIsCut",
             {kLargestWhole + 16},
             2,
             Spread::kLeastLoaded,
             {{{0, kLargestWhole / 2 + kCut}}, {{kLargestWhole / 2 + kCut, kLargestWhole + 16}}}},
        Case{"NoMorePiecesThanServers",
             {10 * kLargestWhole},
             2,
             Spread::kRoundRobin,
             {{{0, 5 * kLargestWhole}}, {{5 * kLargestWhole, 10 * kLargestWhole}}}}),
    [](const auto& info) { return info.param.name; });

TEST(PartitionOfAnythingTest, HasEveryElementOnceAndKeepsServersAlike) {
  const ParameterLayout layout = LayoutOf({10, 7840000, 10, 256, 65536, 256, 200704, 5, 5, 5});
  for (int servers = 1; servers <= 9; ++servers) {
    for (const Spread spread : {Spread::kLeastLoaded, Spread::kRoundRobin}) {
      std::vector<int> owners(static_cast<size_t>(layout.total));
      int64_t most = 0;
      for (const auto& pieces : Partition(layout, servers, spread)) {
        for (const Piece& piece : pieces) {
          EXPECT_EQ(piece.begin % kVariablePadding, 0);
          for (int64_t i = piece.begin; i < piece.end; ++i) ++owners[static_cast<size_t>(i)];
        }
        most = std::max(most, FloatsIn(pieces));
      }
      EXPECT_EQ(std::count(owners.begin(), owners.end(), 1), layout.total);
      if (spread == Spread::kLeastLoaded) {
        EXPECT_LE(most, layout.total / servers * 12 / 10) << servers;
      }
    }
  }
}

TEST(PartitionOfAnythingTest, PenaltiesAndValuesFollowTheirElements) {
  ParameterLayout layout = LayoutOf({32, 64, 32});
  layout.variables[1].l2 = 0.5;
  const std::vector<Piece> pieces = {{16, 48}, {80, 112}};
  const std::vector<UpdateRange> ranges = RangesOf(layout, pieces);
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[0].begin, 16);  // element 32
  EXPECT_EQ(ranges[0].end, 32);
  EXPECT_EQ(ranges[1].begin, 32);  // element 80
  EXPECT_EQ(ranges[1].end, 48);    // element 96, where the variable ends

  std::vector<float> flat(128), dense(64), back(128);
  std::iota(flat.begin(), flat.end(), 0.0f);
  Gather(pieces, flat.data(), dense.data());
  EXPECT_EQ(dense[0], 16);
  EXPECT_EQ(dense[32], 80);
  Scatter(pieces, dense.data(), back.data());
  EXPECT_EQ(back[47], 47);
  EXPECT_EQ(back[48], 0);
  EXPECT_EQ(back[111], 111);
}

}  // namespace
}  // namespace lockstep::trainer::parameter_server
