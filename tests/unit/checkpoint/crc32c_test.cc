#include "trainer/checkpoint/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

namespace lockstep::trainer::checkpoint {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(Crc32cTest, GivesTheValuesOfRfc3720) {
  const std::vector<std::byte> zeros(32), ones(32, std::byte{0xff});
  EXPECT_EQ(Crc32c(zeros), 0x8a9136aau);
  EXPECT_EQ(Crc32c(ones), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(Bytes("123456789")), 0xe3069283u);
  EXPECT_EQ(Crc32c({}), 0u);
}

TEST(Crc32cTest, IsTheSameWithAndWithoutTheInstructionAndInPieces) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(300);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const std::span<const std::byte> all(bytes);
  for (size_t length = 0; length <= bytes.size(); ++length) {
    const uint32_t crc = Crc32c(all.first(length));
    ASSERT_EQ(PortableCrc32c(all.first(length)), crc) << length;
    const size_t half = length / 2;
    ASSERT_EQ(Crc32c(all.subspan(half, length - half), Crc32c(all.first(half))), crc) << length;
    ASSERT_EQ(PortableCrc32c(all.subspan(half, length - half), PortableCrc32c(all.first(half))), crc)
        << length;
  }
}

}  // namespace
}  // namespace lockstep::trainer::checkpoint
