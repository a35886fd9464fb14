#include "trainer/backend/cuda/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/error.h"

namespace lockstep::trainer::cuda {
namespace {

constexpr size_t kGiB = size_t{1} << 30;

TEST(LimitOfTest, FollowsThePolicy) {
  struct Case {
    const char* name;
    DeviceOptions options;
    size_t limit;
  };
  const Case cases[] = {
      {"growth has none", {.policy = MemoryPolicy::kGrowth}, 0},
      {"growth up to a limit", {.policy = MemoryPolicy::kGrowth, .limit = 100}, 100},
      {"limit", {.policy = MemoryPolicy::kLimit, .limit = 1000}, 1000},
      {"fraction", {.policy = MemoryPolicy::kFraction, .fraction = 0.5}, 8 * kGiB},
      {"fraction, and the tighter limit",
       {.policy = MemoryPolicy::kFraction, .limit = 7, .fraction = 0.5},
       7},
      {"limit, and the tighter fraction",
       {.policy = MemoryPolicy::kLimit, .limit = int64_t{16} << 30, .fraction = 0.25},
       4 * kGiB},
      {"preallocate what is said", {.policy = MemoryPolicy::kPreallocate, .limit = 500}, 500},
      {"preallocate a fraction", {.policy = MemoryPolicy::kPreallocate, .fraction = 1}, 16 * kGiB},
      {"preallocate all but a twentieth", {.policy = MemoryPolicy::kPreallocate}, 10 * kGiB - 10 * kGiB / 20},
  };
  for (const Case& c : cases) EXPECT_EQ(LimitOf(c.options, 16 * kGiB, 10 * kGiB), c.limit) << c.name;
}

TEST(LimitOfTest, PreallocateLeavesRoomOnSmallDevicesToo) {
  const DeviceOptions all{.policy = MemoryPolicy::kPreallocate};
  EXPECT_EQ(LimitOf(all, kGiB, kGiB), kGiB - (size_t{225} << 20));
  EXPECT_EQ(LimitOf(all, kGiB, size_t{100} << 20), size_t{50} << 20);
  EXPECT_EQ(LimitOf(all, 4 * kGiB, 4 * kGiB), 4 * kGiB - (size_t{300} << 20));
}

TEST(LimitOfTest, RefusesOptionsThatContradictThePolicy) {
  for (const DeviceOptions& options :
       {DeviceOptions{.policy = MemoryPolicy::kLimit}, DeviceOptions{.limit = -1},
        DeviceOptions{.policy = MemoryPolicy::kFraction},
        DeviceOptions{.policy = MemoryPolicy::kFraction, .fraction = 1.5}, DeviceOptions{.fraction = -0.1}}) {
    EXPECT_THROW(LimitOf(options, kGiB, kGiB), Unsupported);
  }
}

TEST(BudgetTest, RefusesMoreThanTheLimitAndSaysWhat) {
  Budget budget("GPU 3 (NVIDIA T4)", MemoryPolicy::kFraction, 1000);
  budget.Take(600);
  budget.Take(400);
  budget.Give(300);
  try {
    budget.Take(301);
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_STREQ(
        error.what(),
        "GPU 3 (NVIDIA T4): out of memory: 301 bytes were asked for, 700 are in use, 1000 are allowed "
        "(policy Fraction)");
  }
  EXPECT_EQ(budget.used(), 700u);
  EXPECT_EQ(budget.peak(), 1000u);
  budget.Take(300);
  EXPECT_THROW(budget.Take(SIZE_MAX), OutOfMemory);
}

TEST(BudgetTest, WithoutALimitItOnlyCounts) {
  Budget budget("GPU 0", MemoryPolicy::kGrowth, 0);
  budget.Take(size_t{1} << 40);
  EXPECT_EQ(budget.used(), size_t{1} << 40);
  try {
    budget.Refuse(5, "the device has nothing");
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("no limit is set (policy Growth); the device has nothing"));
  }
}

}  // namespace
}  // namespace lockstep::trainer::cuda
