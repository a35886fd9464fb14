#include "trainer/layers/initializer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
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

struct Moments {
  double mean = 0, deviation = 0, least = 0, most = 0;
};
Moments MomentsOf(const Initializer& initializer, const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  Initialize(initializer, shape, 3, 1, values);
  const double count = static_cast<double>(values.size());
  Moments moments{.least = values[0], .most = values[0]};
  for (const float value : values) {
    moments.mean += value / count;
    moments.least = std::min<double>(moments.least, value);
    moments.most = std::max<double>(moments.most, value);
  }
  for (const float value : values)
    moments.deviation += (value - moments.mean) * (value - moments.mean) / count;
  moments.deviation = std::sqrt(moments.deviation);
  return moments;
}

// Keras' random_initializers.py: the standard deviation that is meant, and how far values go.
TEST(InitializerTest, EachHasItsDistribution) {
  const Shape dense{400, 300}, convolution{3, 3, 32, 64};
  const double pi = 3.14159265358979;
  // Of a normal distribution cut at two deviations: √(1 − 4φ(2) / (Φ(2) − Φ(−2))).
  const double cut = std::sqrt(1 - 4 * std::exp(-2.0) / std::sqrt(2 * pi) / std::erf(std::sqrt(2.0)));
  EXPECT_NEAR(cut, 0.87962566103423978, 1e-12);
  struct Wanted {
    Initializer initializer;
    Shape shape;
    double mean, deviation, reach;  // values are within mean ± reach
  };
  Initializer uniform = Initializer::kRandomUniform, normal = Initializer::kRandomNormal,
              truncated = Initializer::kTruncatedNormal;
  uniform.minimum = 0.5;
  uniform.maximum = 1.5;
  normal.mean = truncated.mean = -0.25;
  normal.deviation = truncated.deviation = 0.1;
  const double fan_in = 3 * 3 * 32, fan_out = 3 * 3 * 64;
  for (const Wanted& wanted :
       {Wanted{Initializer::kGlorotUniform, dense, 0, std::sqrt(2.0 / 700), std::sqrt(6.0 / 700)},
        Wanted{Initializer::kGlorotUniform, convolution, 0, std::sqrt(2 / (fan_in + fan_out)),
               std::sqrt(6 / (fan_in + fan_out))},
        Wanted{Initializer::kGlorotNormal, dense, 0, std::sqrt(2.0 / 700), 2 * std::sqrt(2.0 / 700) / cut},
        Wanted{Initializer::kHeUniform, dense, 0, std::sqrt(2.0 / 400), std::sqrt(6.0 / 400)},
        Wanted{Initializer::kHeNormal, dense, 0, std::sqrt(2.0 / 400), 2 * std::sqrt(2.0 / 400) / cut},
        Wanted{Initializer::kHeNormal, convolution, 0, std::sqrt(2 / fan_in),
               2 * std::sqrt(2 / fan_in) / cut},
        Wanted{Initializer::kTruncatedNormal, dense, 0, 0.05 * cut, 0.1},
        Wanted{truncated, dense, -0.25, 0.1 * cut, 0.2}, Wanted{normal, dense, -0.25, 0.1, 0.6},
        Wanted{Initializer::kRandomNormal, dense, 0, 0.05, 0.3},
        Wanted{Initializer::kRandomUniform, dense, 0, 0.05 / std::sqrt(3), 0.05},
        Wanted{uniform, dense, 1, 0.5 / std::sqrt(3), 0.5}}) {
    const Moments moments = MomentsOf(wanted.initializer, wanted.shape);
    const double count = static_cast<double>(wanted.shape.num_elements());
    EXPECT_NEAR(moments.mean, wanted.mean, 4 * wanted.deviation / std::sqrt(count));
    EXPECT_NEAR(moments.deviation / wanted.deviation, 1, 4 / std::sqrt(count));
    EXPECT_LE(moments.most, wanted.mean + wanted.reach * (1 + 1e-6));
    EXPECT_GE(moments.least, wanted.mean - wanted.reach * (1 + 1e-6));
    // (Nothing is cut off before: the tails are there.)
    if (wanted.initializer.kind == Initializer::kRandomNormal) continue;
    EXPECT_GT(moments.most, wanted.mean + 0.99 * wanted.reach);
    EXPECT_LT(moments.least, wanted.mean - 0.99 * wanted.reach);
  }
}

// The share of values within one deviation, which tells the normal distribution from others of its width.
TEST(InitializerTest, NormalOnesAreNormal) {
  for (const Initializer::Kind kind : {Initializer::kRandomNormal, Initializer::kTruncatedNormal}) {
    std::vector<float> values(100'000);
    Initialize(kind, {100'000}, 1, 0, values);
    const auto within = [&](double deviations) {
      const auto is_within = [&](float value) { return std::abs(value) <= 0.05 * deviations; };
      return static_cast<double>(std::count_if(values.begin(), values.end(), is_within)) / 100'000;
    };
    const double all = kind == Initializer::kRandomNormal ? 1 : std::erf(std::sqrt(2.0));
    EXPECT_NEAR(within(1), std::erf(std::sqrt(0.5)) / all, 0.006);
    EXPECT_NEAR(within(0.5), std::erf(0.5 * std::sqrt(0.5)) / all, 0.006);
  }
}

TEST(InitializerTest, ConstantsFillEverything) {
  Initializer seven = Initializer::kConstant;
  seven.value = 7;
  for (const auto& [initializer, wanted] : {std::pair<Initializer, float>{seven, 7.0f},
                                            {Initializer::kConstant, 0.0f},
                                            {Initializer::kOnes, 1.0f}}) {
    std::vector<float> values(10, 3.0f);
    Initialize(initializer, {10}, 1, 0, values);
    EXPECT_THAT(values, testing::Each(wanted));
  }
}

TEST(InitializerTest, NamesAreKnown) {
  EXPECT_EQ(ParseInitializer("GlorotUniform").kind, Initializer::kGlorotUniform);
  EXPECT_EQ(ParseInitializer("TruncatedNormal").kind, Initializer::kTruncatedNormal);
  EXPECT_EQ(ParseInitializer("Zeros").kind, Initializer::kZeros);
  try {
    ParseInitializer("glorot");
    FAIL();
  } catch (const BadModel& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("glorot"), testing::HasSubstr("HeNormal")));
  }
}

}  // namespace
}  // namespace lockstep::trainer
