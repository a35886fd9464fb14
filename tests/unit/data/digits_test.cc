#include "trainer/data/digits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "tests/unit/data/data_files.h"

namespace lockstep::trainer::data {
namespace {

using ::testing::Each;
using ::testing::Ge;
using ::testing::Le;

using Image = std::array<uint8_t, kDigitPixels>;

TEST(DigitsTest, AreTheSameOnEveryMachine) {
  DigitArtist artist(kDigitsSeed);
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (uint64_t i = 0; i < 1000; ++i) {
    Image image;
    const int32_t label =
        artist.Draw(i % 2 == 0 ? DigitArtist::kTrainingStream : DigitArtist::kTestStream, i, image.data());
    hash = (hash ^ static_cast<uint64_t>(label)) * 0x100000001b3;
    for (const uint8_t pixel : image) hash = (hash ^ pixel) * 0x100000001b3;
  }
  // Only a change of the data set itself may change this.
  EXPECT_EQ(hash, 8135013856814610711u);
}

TEST(DigitsTest, DependOnTheirKeyAloneAndNotOnWhatWasDrawnBefore) {
  DigitArtist one(7), other(7), another_seed(8);
  Image drawn, again, different;
  for (uint64_t i = 0; i < 20; ++i) one.Draw(1, i, drawn.data());
  one.Draw(1, 5, drawn.data());
  other.Draw(1, 5, again.data());
  EXPECT_EQ(drawn, again);
  other.Draw(2, 5, different.data());
  EXPECT_NE(drawn, different);
  other.Draw(1, 6, different.data());
  EXPECT_NE(drawn, different);
  another_seed.Draw(1, 5, different.data());
  EXPECT_NE(drawn, different);
}

TEST(DigitsTest, AreDrawnEquallyOftenAndInsideTheImage) {
  DigitArtist artist(3);
  std::array<int, 10> seen{};
  int64_t ink = 0, ink_at_edge = 0;
  for (uint64_t i = 0; i < 10'000; ++i) {
    Image image;
    ++seen[artist.Draw(1, i, image.data())];
    for (int32_t p = 0; p < kDigitPixels; ++p) {
      const int32_t x = p % kDigitSide, y = p / kDigitSide;
      const bool dark = image[p] > 100;
      ink += dark;
      ink_at_edge += dark && (x == 0 || y == 0 || x == kDigitSide - 1 || y == kDigitSide - 1);
    }
  }
  EXPECT_THAT(seen, Each(Ge(850)));
  EXPECT_THAT(seen, Each(Le(1150)));
  EXPECT_GT(ink / 10'000, 30);
  EXPECT_LT(ink_at_edge * 200, ink);
}

// The mean image of each digit as a classifier: it is right for 82 % of MNIST and for 54 % of these, which
// are turned and shifted more. Digits that it tells apart much better would be too easy, much worse ones no
// digits.
TEST(DigitsTest, AreNeitherTrivialNorNoise) {
  const Loaded loaded({.samples = 5000, .test_samples = 1000});
  const DatasetView view = loaded.view();
  const std::vector<float> training = FeaturesOf(view, view.training()), test = FeaturesOf(view, view.test());
  const std::vector<int32_t> labels = LabelsOf(view, view.training()), truth = LabelsOf(view, view.test());
  std::array<std::array<float, kDigitPixels>, 10> mean{};
  std::array<float, 10> count{};
  for (size_t i = 0; i < labels.size(); ++i) {
    ++count[labels[i]];
    for (int p = 0; p < kDigitPixels; ++p) mean[labels[i]][p] += training[i * kDigitPixels + p];
  }
  for (int digit = 0; digit < 10; ++digit) {
    for (float& pixel : mean[digit]) pixel /= count[digit];
  }
  int right = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    std::array<float, 10> distance{};
    for (int digit = 0; digit < 10; ++digit) {
      for (int p = 0; p < kDigitPixels; ++p) {
        const float difference = mean[digit][p] - test[i * kDigitPixels + p];
        distance[digit] += difference * difference;
      }
    }
    right += std::min_element(distance.begin(), distance.end()) - distance.begin() == truth[i];
  }
  EXPECT_GT(right, 450);
  EXPECT_LT(right, 800);
}

TEST(DigitsTest, AreSixtyThousandToTrainOnAndTenThousandToTestOn) {
  const DatasetPlan plan = Source::Open({.validation_samples = 10'000})->plan();
  EXPECT_EQ(plan.training, 50'000);
  EXPECT_EQ(plan.validation, 10'000);
  EXPECT_EQ(plan.test, 10'000);
  EXPECT_EQ(plan.features, 784);
  EXPECT_EQ(plan.classes, 10);
}

TEST(DigitPenTest, LeavesOutWhatIsOutsideTheImage) {
  DigitPen pen;
  pen.Line({-100'000, -100'000}, {100'000, 100'000}, 15);
  pen.Line({-3800, 0}, {3800, 0}, 0);
  EXPECT_GT(pen.Row(14)[0], 0);
  EXPECT_GT(pen.Row(14)[27], 0);
  pen.Clear();
  for (int y = 0; y < kDigitSide; ++y)
    EXPECT_EQ(std::count(pen.Row(y), pen.Row(y) + kDigitSide, 0), kDigitSide);
}

}  // namespace
}  // namespace lockstep::trainer::data
