#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "trainer/error.h"
#include "trainer/tensor/bfloat16.h"
#include "trainer/tensor/buffer.h"
#include "trainer/tensor/parameter_layout.h"
#include "trainer/tensor/shape.h"

namespace lockstep::trainer {
namespace {

TEST(BFloat16Test, RoundsToNearestWithTiesToEven) {
  const auto rounded = [](uint32_t bits) { return ToBFloat16(std::bit_cast<float>(bits)).bits; };
  EXPECT_EQ(rounded(0x3f800000), 0x3f80);
  EXPECT_EQ(rounded(0x3f807fff), 0x3f80);
  EXPECT_EQ(rounded(0x3f808000), 0x3f80);  // a tie, and 0x3f80 is even
  EXPECT_EQ(rounded(0x3f808001), 0x3f81);
  EXPECT_EQ(rounded(0x3f818000), 0x3f82);  // a tie, and 0x3f81 is odd
  EXPECT_EQ(rounded(0xbf818000), 0xbf82);
  EXPECT_EQ(rounded(0x7f7fffff), 0x7f80);  // past the largest: infinity
  EXPECT_EQ(rounded(0x00000001), 0x0000);
}

TEST(BFloat16Test, KeepsNanAndInfinity) {
  EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(ToFloat(ToBFloat16(-std::numeric_limits<float>::infinity())),
            -std::numeric_limits<float>::infinity());
}

TEST(BFloat16Test, ComesBackExactly) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 value{static_cast<uint16_t>(bits)};
    if (std::isnan(ToFloat(value))) continue;
    ASSERT_EQ(ToBFloat16(ToFloat(value)).bits, bits);
  }
}

TEST(BufferTest, IsAlignedToACacheLine) {
  for (const size_t bytes : {size_t{1}, size_t{100}, size_t{4096}, size_t{3} << 20}) {
    const Buffer buffer(HostAllocator(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kBufferAlignment, 0u);
    EXPECT_EQ(buffer.bytes(), bytes);
  }
}

TEST(BufferTest, ZeroedIsZero) {
  const Buffer buffer = ZeroedHostBuffer(1000 * sizeof(float));
  EXPECT_THAT(buffer.span<float>(), testing::Each(0.0f));
  EXPECT_EQ(ZeroedHostBuffer(0).data(), nullptr);
}

class CountingAllocator : public Allocator {
 public:
  void* Allocate(size_t bytes) override {
    live += static_cast<int64_t>(bytes);
    return HostAllocator().Allocate(bytes);
  }
  void Free(void* pointer, size_t bytes) noexcept override {
    live -= static_cast<int64_t>(bytes);
    HostAllocator().Free(pointer, bytes);
  }
  int64_t live = 0;
};

TEST(BufferTest, MovesAndFreesOnce) {
  CountingAllocator allocator;
  {
    Buffer first(allocator, 100);
    void* data = first.data();
    Buffer second = std::move(first);
    EXPECT_EQ(second.data(), data);
    EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): that is the point
    Buffer& same = second;
    second = std::move(same);
    EXPECT_EQ(second.data(), data);
    EXPECT_EQ(allocator.live, 100);
    second = Buffer(allocator, 50);
    EXPECT_EQ(allocator.live, 50);
  }
  EXPECT_EQ(allocator.live, 0);
}

TEST(BufferTest, OutOfMemoryIsTypedAndNamesTheSize) {
  const size_t too_much = std::numeric_limits<size_t>::max() / 2;
  for (const size_t bytes : {too_much, std::numeric_limits<size_t>::max() - 1}) {
    try {
      Buffer buffer(HostAllocator(), bytes);
      FAIL() << "allocated " << bytes;
    } catch (const OutOfMemory& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(std::to_string(bytes)));
      EXPECT_EQ(error.exit_code(), contract::kExitOutOfMemory);
    }
  }
}

TEST(ShapeTest, CountsAndPrints) {
  EXPECT_EQ((Shape{784, 256}).num_elements(), 784 * 256);
  EXPECT_EQ(Shape().num_elements(), 1);
  EXPECT_EQ((Shape{784, 256}).ToString(), "[784, 256]");
}

TEST(ParameterLayoutTest, ListsWhatIsPenalisedOrDecays) {
  ParameterLayout layout;
  layout.variables = {
      {.name = "b/kernel", .shape = {2, 3}, .offset = 0, .size = 6, .l2 = 0.5, .decays = true},
      {.name = "b/bias", .shape = {3}, .offset = 16, .size = 3, .l2 = 0},
      {.name = "a/kernel", .shape = {4, 2}, .offset = 32, .size = 8, .l2 = 0.25},
      {.name = "0/kernel", .shape = {2}, .offset = 48, .size = 2, .decays = true}};
  const auto ranges = layout.update_ranges();
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges[0].begin, 0);
  EXPECT_EQ(ranges[0].end, 6);
  EXPECT_EQ(ranges[1].begin, 32);
  EXPECT_EQ(ranges[1].end, 40);
  EXPECT_FLOAT_EQ(ranges[1].l2, 0.25f);
  EXPECT_TRUE(ranges[0].decays);
  EXPECT_FALSE(ranges[1].decays);
  EXPECT_EQ(ranges[2].l2, 0);
  EXPECT_TRUE(ranges[2].decays);
}

}  // namespace
}  // namespace lockstep::trainer
