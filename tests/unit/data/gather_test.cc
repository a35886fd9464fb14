#include "trainer/data/gather.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "trainer/data/random.h"

namespace lockstep::trainer::data {
namespace {

// Every converter that this processor can run.
std::vector<const RowConverters*> All() {
  std::vector<const RowConverters*> all = {PortableRowConverters(), &BestRowConverters()};
  if (Avx2RowConverters() != nullptr) all.push_back(Avx2RowConverters());
  if (Avx512RowConverters() != nullptr) all.push_back(Avx512RowConverters());
  return all;
}

// To the nearest, ties to even, by trying both neighbours in double.
uint16_t NearestBfloat16(float value) {
  const auto below = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  const auto above = static_cast<uint16_t>(below + 1);
  const auto distance = [&](uint16_t half) {
    return std::abs(static_cast<double>(std::bit_cast<float>(uint32_t{half} << 16)) - value);
  };
  if (distance(below) == distance(above)) return below % 2 == 0 ? below : above;
  return distance(below) < distance(above) ? below : above;
}

std::vector<float> SomeFloats(size_t n) {
  KeyedRandom random(1, 2, 3);
  std::vector<float> values;
  for (size_t i = 0; i < n; ++i)
    values.push_back(static_cast<float>(random.Between(-1'000'000, 1'000'000)) / 65536);
  // Ties, and a denormal that only survives when it is not flushed.
  values[0] = std::bit_cast<float>(0x3f808000u);
  values[1 % n] = std::bit_cast<float>(0x3f818000u);
  values[2 % n] = std::bit_cast<float>(0x00012345u);
  return values;
}

TEST(RowConvertersTest, AgreeOnEveryByteAtEveryLength) {
  std::vector<std::byte> bytes;
  for (int i = 0; i < 300; ++i) bytes.push_back(static_cast<std::byte>(i));
  constexpr float kScale = 1.0f / 255.0f;
  for (const RowConverters* converters : All()) {
    for (size_t n = 0; n <= bytes.size(); ++n) {
      std::vector<float> floats(n + 1, -1.0f);
      std::vector<uint16_t> halves(n + 1, 0xbeef);
      converters->uint8_to_float(bytes.data(), n, kScale, floats.data());
      converters->uint8_to_bfloat16(bytes.data(), n, kScale, halves.data());
      for (size_t i = 0; i < n; ++i) {
        const float expected = static_cast<float>(i % 256) * kScale;
        ASSERT_EQ(floats[i], expected) << i << " of " << n;
        ASSERT_EQ(halves[i], NearestBfloat16(expected)) << i << " of " << n;
      }
      ASSERT_EQ(floats[n], -1.0f) << "wrote beyond " << n;
      ASSERT_EQ(halves[n], 0xbeef) << "wrote beyond " << n;
    }
  }
}

TEST(RowConvertersTest, AgreeOnFloatsAtEveryLength) {
  for (const RowConverters* converters : All()) {
    for (size_t n = 1; n <= 100; ++n) {
      const std::vector<float> values = SomeFloats(n);
      const auto* in = reinterpret_cast<const std::byte*>(values.data());
      std::vector<float> floats(n + 1, -1.0f);
      std::vector<uint16_t> halves(n + 1, 0xbeef);
      converters->float_to_float(in, n, 1.0f, floats.data());
      converters->float_to_bfloat16(in, n, 1.0f, halves.data());
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(floats[i], values[i]);
        ASSERT_EQ(halves[i], NearestBfloat16(values[i])) << values[i];
      }
      ASSERT_EQ(floats[n], -1.0f);
      ASSERT_EQ(halves[n], 0xbeef);
    }
  }
}

}  // namespace
}  // namespace lockstep::trainer::data
