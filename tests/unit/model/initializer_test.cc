#include "trainer/layers/initializer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

std::vector<float> Draw(const Shape& shape, uint64_t seed, uint32_t variable) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  Initialize(Initializer::kGlorotUniform, shape, seed, variable, values);
  return values;
}

TEST(InitializerTest, GlorotUniformFillsItsInterval) {
  const auto values = Draw({784, 256}, 1, 0);
  const double limit = std::sqrt(6.0 / (784 + 256));
  double sum = 0, squares = 0, largest = 0;
  for (const float value : values) {
    ASSERT_LE(std::abs(value), limit);
    largest = std::max<double>(largest, std::abs(value));
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const double count = static_cast<double>(values.size());
  EXPECT_GT(largest, 0.999 * limit);
  EXPECT_NEAR(sum / count, 0, 4 * limit / std::sqrt(3 * count));
  EXPECT_NEAR(squares / count, limit * limit / 3, 0.01 * limit * limit);
}

TEST(InitializerTest, FansOfConvolutionsCountTheReceptiveField) {
  const double limit = std::sqrt(6.0 / (5 * 5 * 3 + 5 * 5 * 64));
  double largest = 0;
  for (const float value : Draw({5, 5, 3, 64}, 1, 0)) largest = std::max<double>(largest, std::abs(value));
  EXPECT_LE(largest, limit);
  EXPECT_GT(largest, 0.99 * limit);
}

TEST(InitializerTest, IsKeyedBySeedAndVariable) {
  EXPECT_EQ(Draw({16, 16}, 5, 2), Draw({16, 16}, 5, 2));
  std::set<std::vector<float>> different;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) {
    for (const uint32_t variable : {0u, 1u, 2u}) different.insert(Draw({16, 16}, seed, variable));
  }
  EXPECT_EQ(different.size(), 9u);
}

// An element's value depends on its place alone.
TEST(InitializerTest, LengthsThatAreNoMultipleOfFourAgree) {
  const auto whole = Draw({7, 1}, 3, 0);
  std::vector<float> part(5);
  Initialize(Initializer::kGlorotUniform, {7, 1}, 3, 0, part);
  EXPECT_EQ(part, std::vector<float>(whole.begin(), whole.begin() + 5));
}

// The first words of Philox 4x32-10 with an all-zero counter and key (Random123's known answers).
TEST(InitializerTest, GeneratorGivesTheKnownAnswer) {
  const auto values = Draw({4, 1}, 0, 0);
  const float limit = std::sqrt(6.0f / 5);
  const uint32_t words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(values[i], limit * (2.0 * (words[i] >> 8) / (1 << 24) - 1), 1e-6);
  }
}

TEST(InitializerTest, ZerosAreZeros) {
  std::vector<float> values(10, 3.0f);
  Initialize(Initializer::kZeros, {10}, 1, 0, values);
  EXPECT_THAT(values, testing::Each(0.0f));
}

TEST(InitializerTest, NamesAreKnown) {
  EXPECT_EQ(ParseInitializer("GlorotUniform"), Initializer::kGlorotUniform);
  EXPECT_EQ(ParseInitializer("Zeros"), Initializer::kZeros);
  EXPECT_THROW(ParseInitializer("glorot"), BadModel);
}

}  // namespace
}  // namespace lockstep::trainer
