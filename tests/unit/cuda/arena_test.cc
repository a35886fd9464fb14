#include "trainer/backend/cuda/arena.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace lockstep::trainer::cuda {
namespace {

constexpr size_t kUnit = Arena::kGranularity;

TEST(ArenaTest, HandsOutAllOfItAndTakesItBack) {
  Arena arena(4 * kUnit + 100);  // what is less than a unit is not used
  EXPECT_EQ(arena.bytes(), 4 * kUnit);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(arena.Take(kUnit), i * kUnit);
  EXPECT_FALSE(arena.Take(1));
  EXPECT_EQ(arena.largest_free(), 0u);
  for (size_t i = 0; i < 4; ++i) arena.Give(i * kUnit);
  EXPECT_EQ(arena.used(), 0u);
  EXPECT_EQ(arena.Take(4 * kUnit), 0u);
}

TEST(ArenaTest, RoundsUpToUnits) {
  Arena arena(4 * kUnit);
  EXPECT_EQ(arena.Take(1), 0u);
  EXPECT_EQ(arena.Take(kUnit + 1), kUnit);
  EXPECT_EQ(arena.used(), 3 * kUnit);
}

TEST(ArenaTest, PrefersTheSmallestPieceThatIsLargeEnough) {
  Arena arena(10 * kUnit);
  const auto large = arena.Take(4 * kUnit);
  arena.Take(kUnit);
  const auto small = arena.Take(2 * kUnit);
  arena.Take(3 * kUnit);
  arena.Give(*large);
  arena.Give(*small);
  EXPECT_EQ(arena.Take(2 * kUnit), *small);
  EXPECT_EQ(arena.Take(2 * kUnit), *large);
}

TEST(ArenaTest, FreePiecesGrowTogetherOnBothSides) {
  Arena arena(3 * kUnit);
  for (int i = 0; i < 3; ++i) arena.Take(kUnit);
  arena.Give(0);
  arena.Give(2 * kUnit);
  EXPECT_EQ(arena.largest_free(), kUnit);
  EXPECT_FALSE(arena.Take(2 * kUnit));
  arena.Give(kUnit);
  EXPECT_EQ(arena.largest_free(), 3 * kUnit);
}

TEST(ArenaTest, RefusesSizesThatOverflowWhenRounded) {
  Arena arena(kUnit);
  EXPECT_FALSE(arena.Take(SIZE_MAX));
  EXPECT_FALSE(arena.Take(SIZE_MAX - kUnit));
  EXPECT_EQ(Arena(0).Take(1), std::nullopt);
}

TEST(ArenaTest, NeverHandsOutAByteTwiceAndLosesNone) {
  constexpr size_t kBytes = 1000 * kUnit;
  Arena arena(kBytes);
  std::mt19937 random(4);
  std::map<size_t, size_t> taken;
  for (int i = 0; i < 20000; ++i) {
    if (taken.empty() || random() % 2 == 0) {
      const size_t bytes = 1 + random() % (40 * kUnit);
      const auto offset = arena.Take(bytes);
      if (!offset) continue;
      const auto next = taken.lower_bound(*offset);
      if (next != taken.end()) {
        ASSERT_LE(*offset + bytes, next->first);
      }
      if (next != taken.begin()) {
        ASSERT_LE(std::prev(next)->first + std::prev(next)->second, *offset);
      }
      ASSERT_LE(*offset + bytes, kBytes);
      taken.emplace(*offset, bytes);
    } else {
      const auto some = std::next(taken.begin(), static_cast<long>(random() % taken.size()));
      arena.Give(some->first);
      taken.erase(some);
    }
  }
  for (const auto& [offset, bytes] : taken) arena.Give(offset);
  EXPECT_EQ(arena.largest_free(), kBytes);
}

}  // namespace
}  // namespace lockstep::trainer::cuda
