#include "trainer/data/digits.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "trainer/data/random.h"
#include "trainer/data/readers.h"
#include "trainer/data/source.h"

namespace lockstep::trainer::data {
namespace {

constexpr int32_t kOne = 1 << 12;  // of fixed-point factors

// How far a digit may be from its glyph. Tuned so that the 784–256–256–10 network of TensorFlow's guide
// reaches what it reaches on MNIST: about 97 % after two epochs of 50,000.
constexpr int32_t kMostRotation = kOne * 28 / 100;  // radians
constexpr int32_t kMostShear = kOne * 40 / 100;
constexpr int32_t kLeastScale = kOne * 65 / 100, kMostScale = kOne * 112 / 100;
constexpr int32_t kMostShift = 560;     // 1/256 pixels
constexpr int32_t kMostBend = 11 * 16;  // sixteenths of a font unit
constexpr int32_t kLeastInk = 130, kMostInk = 255;
constexpr int32_t kMostNoise = 70;

// From glyph to image: bends the paper by a coarse grid of random displacements (as in Simard, Steinkraus,
// Platt: "Best practices for convolutional neural networks", 2003, which smooths a fine one), then maps it
// affinely.
class Distortion {
 public:
  explicit Distortion(KeyedRandom& random) {
    const int32_t angle = random.Between(-kMostRotation, kMostRotation);
    const int32_t shear = random.Between(-kMostShear, kMostShear);
    const int32_t width = random.Between(kLeastScale, kMostScale),
                  height = random.Between(kLeastScale, kMostScale);
    // Taylor's first terms will do for a quarter of a radian.
    const int32_t square = angle * angle / kOne;
    const int32_t cosine = kOne - square / 2, sine = angle - angle * square / kOne / 6;
    const int32_t slant = width * shear / kOne;
    xx_ = cosine * width / kOne;
    xy_ = (cosine * slant - sine * height) / kOne;
    yx_ = sine * width / kOne;
    yy_ = (sine * slant + cosine * height) / kOne;
    shift_.x = random.Between(-kMostShift, kMostShift);
    shift_.y = random.Between(-kMostShift, kMostShift);
    for (PenPoint& bend : bends_) {
      bend.x = random.Between(-kMostBend, kMostBend);
      bend.y = random.Between(-kMostBend, kMostBend);
    }
  }

  PenPoint Apply(FontPoint point) const {
    const PenPoint bend = BendAt(point);
    const int32_t x = point.x + bend.x, y = point.y + bend.y;
    // A glyph of 1,600 sixteenths is 20 pixels high, that is 5,120 of 1/256 pixel: 16 for 5.
    return {(xx_ * x + xy_ * y) / kOne * 16 / 5 + shift_.x, (yx_ * x + yy_ * y) / kOne * 16 / 5 + shift_.y};
  }

 private:
  static constexpr int32_t kColumns = 3, kRows = 4;  // of knots
  static constexpr int32_t kCell = 576;  // sixteenths of a font unit: the knots span ±36 by ±54 units

  PenPoint BendAt(FontPoint point) const {
    const int32_t x = std::clamp(point.x + kCell * (kColumns - 1) / 2, 0, kCell * (kColumns - 1) - 1);
    const int32_t y = std::clamp(point.y + kCell * (kRows - 1) / 2, 0, kCell * (kRows - 1) - 1);
    const PenPoint* knot = &bends_[y / kCell * kColumns + x / kCell];
    const int32_t u = x % kCell, v = y % kCell;
    const auto blend = [&](int32_t PenPoint::*axis) {
      const int32_t upper = knot[0].*axis * (kCell - u) + knot[1].*axis * u;
      const int32_t lower = knot[kColumns].*axis * (kCell - u) + knot[kColumns + 1].*axis * u;
      return (upper / kCell * (kCell - v) + lower / kCell * v) / kCell;
    };
    return {blend(&PenPoint::x), blend(&PenPoint::y)};
  }

  int32_t xx_, xy_, yx_, yy_;
  PenPoint shift_;
  std::array<PenPoint, kColumns * kRows> bends_;
};

class DigitsSource : public Source {
 public:
  DigitsSource(const DatasetPlan& plan, uint64_t seed) : Source(plan), seed_(seed) {}

  bool divisible() const override { return true; }

 private:
  void Fill(const Destination& to, int64_t part, int64_t parts) override {
    DigitArtist artist(seed_);
    const int64_t first_test = plan().training + plan().validation;
    const Range mine = ShardOf({0, plan().samples()}, part, parts);
    for (int64_t i = mine.first; i < mine.end(); ++i) {
      const bool test = i >= first_test;
      auto* image = reinterpret_cast<uint8_t*>(to.samples) + i * kDigitPixels;
      const int32_t label = artist.Draw(test ? DigitArtist::kTestStream : DigitArtist::kTrainingStream,
                                        static_cast<uint64_t>(test ? i - first_test : i), image);
      StoreTarget(plan(), label, to.targets, i);
    }
  }

  uint64_t seed_;
};

}  // namespace

int32_t DigitArtist::Draw(uint64_t stream, uint64_t index, uint8_t* image) {
  KeyedRandom random(seed_, stream, index);
  const auto digit = static_cast<int32_t>(random.Below(10));
  const std::vector<Glyph>& ways = font_[digit];
  const Glyph& glyph = ways[random.Below(ways.size())];
  const Distortion distortion(random);
  const int32_t thickness = random.Between(1, 14);

  pen_.Clear();
  for (const Polyline& stroke : glyph.strokes) {
    PenPoint from = distortion.Apply(stroke[0]);
    for (size_t i = 1; i < stroke.size(); ++i) {
      const PenPoint to = distortion.Apply(stroke[i]);
      pen_.Line(from, to, thickness);
      from = to;
    }
  }

  const int32_t ink = random.Between(kLeastInk, kMostInk), noise = random.Between(0, kMostNoise);
  for (int32_t y = 0; y < kDigitSide; ++y) {
    std::array<uint8_t, 32> grain;
    for (size_t i = 0; i < grain.size(); i += 8) {
      const uint64_t bits = random.Next();
      for (int b = 0; b < 8; ++b) grain[i + b] = static_cast<uint8_t>(bits >> (8 * b));
    }
    const uint8_t* row = pen_.Row(y);
    for (int32_t x = 0; x < kDigitSide; ++x) {
      const int32_t level = (row[x] * ink + (grain[x] - 128) * noise) / 256;
      image[y * kDigitSide + x] = static_cast<uint8_t>(std::clamp(level, 0, 255));
    }
  }
  return digit;
}

std::unique_ptr<Source> OpenDigits(const SourceOptions& options) {
  DatasetPlan plan;
  plan.sample_type = SampleType::kUint8;
  plan.target_type = options.targets;
  plan.scale = 1.0f / 255.0f;
  plan.features = kDigitPixels;
  plan.height = plan.width = kDigitSide;
  plan.channels = 1;
  plan.classes = options.targets == TargetType::kLabel ? 10 : 0;
  plan.training = options.samples > 0 ? options.samples : kDigitsTrainingSamples;
  plan.test = options.test_samples > 0 ? options.test_samples : kDigitsTestSamples;
  FinishPlan(options, "digits", &plan);
  return std::make_unique<DigitsSource>(plan, options.digits_seed);
}

}  // namespace lockstep::trainer::data
