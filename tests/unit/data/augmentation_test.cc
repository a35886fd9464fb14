#include "trainer/data/augmentation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>
#include <vector>

#include "trainer/error.h"

namespace lockstep::trainer::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;
using ::testing::FloatNear;
using ::testing::Pointwise;

constexpr int64_t kHeight = 7, kWidth = 9, kChannels = 3;

DatasetPlan Plan() {
  return {.scale = 1.0f / 255,
          .features = kHeight * kWidth * kChannels,
          .height = kHeight,
          .width = kWidth,
          .channels = kChannels};
}

std::vector<std::byte> Image(uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<std::byte> image(static_cast<size_t>(Plan().features));
  for (std::byte& value : image)
    value = static_cast<std::byte>(1 + random() % 255);  // none is the padding's zero
  return image;
}

// A feature of an image as it is stored; 0 outside.
double At(const std::vector<std::byte>& image, int64_t y, int64_t x, int64_t channel) {
  if (y < 0 || y >= kHeight || x < 0 || x >= kWidth) return 0;
  return std::to_integer<int>(image[static_cast<size_t>((y * kWidth + x) * kChannels + channel)]) / 255.0;
}

// The window at (top, left), perhaps mirrored.
std::vector<double> Window(const std::vector<std::byte>& image, int64_t height, int64_t width, int64_t top,
                           int64_t left, bool mirrored = false) {
  std::vector<double> window;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < kChannels; ++c) {
        window.push_back(At(image, top + y, left + (mirrored ? width - 1 - x : x), c));
      }
    }
  }
  return window;
}

std::vector<float> Train(const Augmentation& augmentation, const std::vector<std::byte>& image,
                         int64_t epoch = 0, uint32_t sample = 0) {
  std::vector<float> out(static_cast<size_t>(augmentation.features()), NAN);
  augmentation.Train(image.data(), epoch, sample, out.data());
  return out;
}

std::vector<float> Evaluate(const Augmentation& augmentation, const std::vector<std::byte>& image) {
  std::vector<float> out(static_cast<size_t>(augmentation.features()), NAN);
  augmentation.Evaluate(image.data(), out.data());
  return out;
}

bool Near(const std::vector<float>& values, const std::vector<double>& wanted) {
  return std::equal(values.begin(), values.end(), wanted.begin(), wanted.end(),
                    [](float a, double b) { return std::abs(a - b) < 1e-5; });
}

// Mean and standard deviation of `channel`, or of all (-1), in double.
std::pair<double, double> Moments(const std::vector<double>& image, int64_t channel = -1) {
  double sum = 0, squares = 0, count = 0;
  for (size_t i = 0; i < image.size(); ++i) {
    if (channel >= 0 && static_cast<int64_t>(i) % kChannels != channel) continue;
    sum += image[i];
    squares += image[i] * image[i];
    ++count;
  }
  return {sum / count, std::sqrt(squares / count - sum / count * sum / count)};
}

TEST(AugmentationTest, WithoutOptionsImagesStayAsTheyAre) {
  EXPECT_TRUE(AugmentationOptions().none());
  const Augmentation augmentation({}, Plan(), 1);
  EXPECT_EQ(augmentation.output_shape(), (Shape{kHeight, kWidth, kChannels}));
  const auto image = Image();
  EXPECT_TRUE(Near(Train(augmentation, image), Window(image, kHeight, kWidth, 0, 0)));
  EXPECT_EQ(Evaluate(augmentation, image), Train(augmentation, image));
}

TEST(AugmentationTest, CropsAreEveryWindowOfThePaddedImage) {
  const Augmentation augmentation({.crop_height = 5, .crop_width = 8, .padding = 2}, Plan(), 1);
  EXPECT_EQ(augmentation.output_shape(), (Shape{5, 8, kChannels}));
  const auto image = Image();
  std::set<std::pair<int64_t, int64_t>> seen;
  for (uint32_t sample = 0; sample < 600; ++sample) {
    const auto cropped = Train(augmentation, image, 0, sample);
    int found = 0;
    for (int64_t top = -2; top <= 4; ++top) {
      for (int64_t left = -2; left <= 3; ++left) {
        if (!Near(cropped, Window(image, 5, 8, top, left))) continue;
        seen.insert({top, left});
        ++found;
      }
    }
    ASSERT_EQ(found, 1) << sample;
  }
  EXPECT_EQ(seen.size(), 7u * 6u);
}

TEST(AugmentationTest, EvaluationTakesTheMiddle) {
  const auto image = Image();
  const AugmentationOptions random{
      .flip = true, .brightness = 0.5, .contrast_lower = 0.2, .contrast_upper = 1.8};
  AugmentationOptions options = random;
  options.crop_height = 4;
  options.crop_width = 5;
  EXPECT_TRUE(Near(Evaluate(Augmentation(options, Plan(), 1), image), Window(image, 4, 5, 1, 2)));
  options = random;
  options.crop_height = kHeight;
  options.crop_width = kWidth;
  options.padding = 4;
  EXPECT_TRUE(Near(Evaluate(Augmentation(options, Plan(), 1), image), Window(image, kHeight, kWidth, 0, 0)));
  options.crop_height = kHeight + 2;
  EXPECT_TRUE(
      Near(Evaluate(Augmentation(options, Plan(), 1), image), Window(image, kHeight + 2, kWidth, -1, 0)));
}

TEST(AugmentationTest, OneImageInTwoIsMirrored) {
  const Augmentation augmentation({.flip = true}, Plan(), 1);
  const auto image = Image();
  int mirrored = 0;
  for (uint32_t sample = 0; sample < 1000; ++sample) {
    const auto out = Train(augmentation, image, 0, sample);
    const bool is_mirrored = Near(out, Window(image, kHeight, kWidth, 0, 0, true));
    ASSERT_TRUE(is_mirrored || Near(out, Window(image, kHeight, kWidth, 0, 0)));
    mirrored += is_mirrored ? 1 : 0;
  }
  EXPECT_NEAR(mirrored, 500, 80);
}

TEST(AugmentationTest, BrightnessAddsOneNumberToAll) {
  const Augmentation augmentation({.brightness = 0.25}, Plan(), 1);
  const auto image = Image();
  double least = 1, most = -1;
  for (uint32_t sample = 0; sample < 500; ++sample) {
    auto wanted = Window(image, kHeight, kWidth, 0, 0);
    const auto out = Train(augmentation, image, 0, sample);
    const double added = out[0] - wanted[0];
    for (double& value : wanted) value += added;
    ASSERT_TRUE(Near(out, wanted));
    least = std::min(least, added);
    most = std::max(most, added);
  }
  EXPECT_NEAR(least, -0.25, 0.01);
  EXPECT_NEAR(most, 0.25, 0.01);
}

TEST(AugmentationTest, ContrastMovesAChannelsValuesFromItsMean) {
  const Augmentation augmentation({.contrast_lower = 0.2, .contrast_upper = 1.8}, Plan(), 1);
  const auto image = Image();
  const auto original = Window(image, kHeight, kWidth, 0, 0);
  double least = 10, most = 0;
  for (uint32_t sample = 0; sample < 500; ++sample) {
    const auto out = Train(augmentation, image, 0, sample);
    const double factor = (out[0] - Moments(original, 0).first) / (original[0] - Moments(original, 0).first);
    std::vector<double> wanted;
    for (size_t i = 0; i < original.size(); ++i) {
      const double mean = Moments(original, static_cast<int64_t>(i) % kChannels).first;
      wanted.push_back((original[i] - mean) * factor + mean);
    }
    ASSERT_TRUE(Near(out, wanted)) << factor;
    least = std::min(least, factor);
    most = std::max(most, factor);
  }
  EXPECT_NEAR(least, 0.2, 0.02);
  EXPECT_NEAR(most, 1.8, 0.02);
}

TEST(AugmentationTest, WhitenedImagesHaveMeanZeroAndDeviationOne) {
  const Augmentation augmentation({.whitening = true}, Plan(), 1);
  const auto image = Image();
  auto wanted = Window(image, kHeight, kWidth, 0, 0);
  const auto [mean, deviation] = Moments(wanted);
  for (double& value : wanted) value = (value - mean) / deviation;
  EXPECT_TRUE(Near(Train(augmentation, image), wanted));
  EXPECT_TRUE(Near(Evaluate(augmentation, image), wanted));
  // Of stored values 0 to 255 the divisor is at least 1 / √(features).
  std::vector<std::byte> grey(image.size(), std::byte{100});
  EXPECT_THAT(Evaluate(augmentation, grey), Each(FloatNear(0, 1e-3)));
  grey[0] = std::byte{101};
  const double count = static_cast<double>(image.size());
  EXPECT_NEAR(Evaluate(augmentation, grey)[0],
              (1 - 1 / count) / std::max(1 / std::sqrt(count), std::sqrt((1 - 1 / count) / count)), 1e-3);
}

TEST(AugmentationTest, MeansAndDeviationsAreByChannel) {
  const AugmentationOptions options{.mean = {0.4, 0.5, 0.6}, .deviation = {0.2, 0.25, 0.5}};
  const auto image = Image();
  auto wanted = Window(image, kHeight, kWidth, 0, 0);
  for (size_t i = 0; i < wanted.size(); ++i) {
    wanted[i] = (wanted[i] - options.mean[i % 3]) / options.deviation[i % 3];
  }
  EXPECT_TRUE(Near(Train(Augmentation(options, Plan(), 1), image), wanted));
  wanted = Window(image, kHeight, kWidth, 0, 0);
  for (double& value : wanted) value = (value - 0.5) / 0.25;
  EXPECT_TRUE(Near(Evaluate(Augmentation({.mean = {0.5}, .deviation = {0.25}}, Plan(), 1), image), wanted));
}

AugmentationOptions Everything() {
  return {.crop_height = 6,
          .crop_width = 6,
          .padding = 1,
          .flip = true,
          .brightness = 0.25,
          .contrast_lower = 0.2,
          .contrast_upper = 1.8,
          .whitening = true};
}

TEST(AugmentationTest, SeedEpochAndSampleDecideAndNothingElse) {
  const auto image = Image();
  const Augmentation one(Everything(), Plan(), 7), same(Everything(), Plan(), 7),
      other(Everything(), Plan(), 8);
  const auto first = Train(one, image, 3, 5);
  Train(one, image, 0, 0);
  EXPECT_EQ(Train(one, image, 3, 5), first);
  EXPECT_EQ(Train(same, image, 3, 5), first);
  EXPECT_NE(Train(other, image, 3, 5), first);
  EXPECT_NE(Train(one, image, 4, 5), first);
  EXPECT_NE(Train(one, image, 3, 6), first);
}

// Each operation keeps its numbers when others come or go.
TEST(AugmentationTest, OperationsDrawApartFromOneAnother) {
  const auto image = Image();
  AugmentationOptions without = Everything();
  without.brightness = 0;
  without.whitening = false;
  AugmentationOptions only_crop{.crop_height = 6, .crop_width = 6, .padding = 1, .flip = true};
  without.contrast_lower = without.contrast_upper = 1;
  AugmentationOptions bright = without;
  bright.brightness = 0.25;
  for (uint32_t sample = 0; sample < 50; ++sample) {
    const auto plain = Train(Augmentation(only_crop, Plan(), 1), image, 0, sample);
    auto brighter = Train(Augmentation(bright, Plan(), 1), image, 0, sample);
    const float added = brighter[0] - plain[0];
    for (float& value : brighter) value -= added;
    EXPECT_THAT(brighter, Pointwise(FloatNear(1e-5), plain));
  }
}

TEST(AugmentationTest, RefusesWhatDoesNotFitTheImages) {
  const auto why = [](const AugmentationOptions& options, DatasetPlan plan = Plan()) -> std::string {
    try {
      const Augmentation augmentation(options, plan, 1);
    } catch (const BadData& error) {
      return error.what();
    }
    return "accepted";
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(why({.flip = true}, {.features = 12}), HasSubstr("no images"));
  EXPECT_THAT(why({.crop_height = 8}), HasSubstr("8 × 9 out of images of 7 × 9"));
  EXPECT_EQ(why({.crop_height = 8, .padding = 1}), "accepted");
  EXPECT_THAT(why({.brightness = -1}), HasSubstr("brightness"));
  EXPECT_THAT(why({.contrast_lower = 2, .contrast_upper = 1}), HasSubstr("contrast"));
  EXPECT_THAT(why({.mean = {0.5, 0.5}, .deviation = {1, 1}}), HasSubstr("3 channels"));
  EXPECT_THAT(why({.mean = {0.5}}), HasSubstr("standardDeviation"));
  EXPECT_THAT(why({.mean = {0.5}, .deviation = {0}}), HasSubstr("standardDeviation"));
}

}  // namespace
}  // namespace lockstep::trainer::data
