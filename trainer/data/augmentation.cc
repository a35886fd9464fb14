#include "trainer/data/augmentation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "trainer/data/gather.h"
#include "trainer/data/random.h"
#include "trainer/error.h"

// The operations and their formulas are those of TensorFlow's CIFAR-10 tutorial (cifar10_input.py), in
// tf.image: random_crop, random_flip_left_right, random_brightness, random_contrast,
// per_image_standardization.
namespace lockstep::trainer::data {
namespace {

constexpr uint64_t kAugmentationStream = 0x61756772;  // apart from other uses of the seed

void Check(bool right, const std::string& what) {
  if (!right) throw BadData("data.augmentation: " + what);
}

// Evenly in [low, high).
float Uniform(KeyedRandom& random, double low, double high) {
  const double unit = static_cast<double>(random.Next() >> 11) * 0x1p-53;
  return static_cast<float>(low + (high - low) * unit);
}

// Sums go in lanes, and these are added in order: the same bits everywhere, and vectors for the compiler.
// Lane l has the elements l, l + lanes, … of `of(i)`.
constexpr size_t kMostLanes = 48;
using Lanes = std::array<float, kMostLanes>;
template <typename Of>
void SumLanes(size_t lanes, size_t count, const Of& of, Lanes& sums) {
  sums.fill(0);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (size_t l = 0; l < lanes; ++l) sums[l] += of(i + l);
  }
  for (size_t l = 0; i < count; ++i, ++l) sums[l] += of(i);
}

template <typename Of>
float Sum(size_t count, const Of& of) {
  Lanes sums;
  SumLanes(kMostLanes, count, of, sums);
  float sum = 0;
  for (const float lane : sums) sum += lane;
  return sum;
}

}  // namespace

bool AugmentationOptions::none() const {
  return crop_height == 0 && crop_width == 0 && padding == 0 && !flip && brightness == 0 &&
         contrast_lower == 1 && contrast_upper == 1 && !whitening && mean.empty() && deviation.empty();
}

Augmentation::Augmentation(const AugmentationOptions& options, const DatasetPlan& plan, uint64_t seed)
    : options_(options), plan_(plan), seed_(Mix(seed ^ kAugmentationStream)) {
  Check(plan.channels > 0, "the samples are no images");
  Check(plan.channels <= static_cast<int64_t>(kMostLanes), "images have at most 48 channels");
  Check(options.padding >= 0 && options.crop_height >= 0 && options.crop_width >= 0,
        "sizes are not negative");
  height_ = options.crop_height > 0 ? options.crop_height : plan.height;
  width_ = options.crop_width > 0 ? options.crop_width : plan.width;
  Check(height_ <= plan.height + 2 * options.padding && width_ <= plan.width + 2 * options.padding,
        "a crop of " + std::to_string(height_) + " × " + std::to_string(width_) + " out of images of " +
            std::to_string(plan.height) + " × " + std::to_string(plan.width) + " with padding " +
            std::to_string(options.padding));
  Check(options.brightness >= 0 && std::isfinite(options.brightness), "brightness is a number of at least 0");
  Check(options.contrast_lower >= 0 && options.contrast_lower <= options.contrast_upper &&
            std::isfinite(options.contrast_upper),
        "contrast is from a lower to an upper number, both at least 0");
  const auto channels = static_cast<size_t>(plan.channels);
  Check(options.mean.size() == options.deviation.size() &&
            (options.mean.empty() || options.mean.size() == 1 || options.mean.size() == channels),
        "mean and standardDeviation have one number, or one for each of the " + std::to_string(channels) +
            " channels");
  for (const double deviation : options.deviation) {
    Check(deviation > 0 && std::isfinite(deviation), "a standardDeviation is greater than 0");
  }
  if (options.mean.empty()) return;
  for (size_t i = 0; i < static_cast<size_t>(width_) * channels; ++i) {
    const size_t channel = options.mean.size() == 1 ? 0 : i % channels;
    mean_.push_back(static_cast<float>(options.mean[channel]));
    inverse_deviation_.push_back(static_cast<float>(1 / options.deviation[channel]));
  }
}

void Augmentation::Train(const std::byte* stored, int64_t epoch, uint32_t sample, float* out) const {
  // All are drawn, so that none changes what another one does.
  KeyedRandom random(seed_, static_cast<uint64_t>(epoch), sample);
  const int64_t tops = plan_.height + 2 * options_.padding - height_ + 1;
  const int64_t lefts = plan_.width + 2 * options_.padding - width_ + 1;
  const auto top = static_cast<int64_t>(random.Below(static_cast<uint64_t>(tops)));
  const auto left = static_cast<int64_t>(random.Below(static_cast<uint64_t>(lefts)));
  const bool flip = random.Below(2) == 1;
  const float brighter = Uniform(random, -options_.brightness, options_.brightness);
  const float contrast = Uniform(random, options_.contrast_lower, options_.contrast_upper);

  Crop(stored, top - options_.padding, left - options_.padding, out);
  if (options_.flip && flip) Flip(out);
  if (options_.brightness != 0) {
    for (int64_t i = 0; i < features(); ++i) out[i] += brighter;
  }
  if (options_.contrast_lower != 1 || options_.contrast_upper != 1) ChangeContrast(contrast, out);
  Normalize(out);
}

void Augmentation::Evaluate(const std::byte* stored, float* out) const {
  // (Rounded down, as tf.image.resize_with_crop_or_pad.)
  const auto middle = [](int64_t size, int64_t of) {
    return (size - of) >= 0 ? (size - of) / 2 : -((of - size) / 2);
  };
  Crop(stored, middle(plan_.height, height_), middle(plan_.width, width_), out);
  Normalize(out);
}

// The window whose first pixel is at (top, left); zeros outside of the image.
void Augmentation::Crop(const std::byte* stored, int64_t top, int64_t left, float* out) const {
  const auto convert = BestRowConverters().ToFloat(plan_.sample_type);
  const int64_t channels = plan_.channels, row = width_ * channels;
  const size_t value_bytes = plan_.sample_bytes() / static_cast<size_t>(plan_.features);
  const int64_t first = std::clamp<int64_t>(-left, 0, width_),
                last = std::clamp(plan_.width - left, first, width_);
  for (int64_t y = 0; y < height_; ++y, out += row) {
    const int64_t from = top + y;
    if (from < 0 || from >= plan_.height) {
      std::fill_n(out, row, 0.0f);
      continue;
    }
    std::fill_n(out, first * channels, 0.0f);
    const int64_t at = (from * plan_.width + left + first) * channels;
    convert(stored + static_cast<size_t>(at) * value_bytes, static_cast<size_t>((last - first) * channels),
            plan_.scale, out + first * channels);
    std::fill_n(out + last * channels, (width_ - last) * channels, 0.0f);
  }
}

void Augmentation::Flip(float* image) const {
  const int64_t channels = plan_.channels;
  for (int64_t y = 0; y < height_; ++y) {
    float* row = image + y * width_ * channels;
    for (int64_t a = 0, b = width_ - 1; a < b; ++a, --b) {
      std::swap_ranges(row + a * channels, row + (a + 1) * channels, row + b * channels);
    }
  }
}

void Augmentation::ChangeContrast(float factor, float* image) const {
  const auto channels = static_cast<size_t>(plan_.channels), count = static_cast<size_t>(features());
  const size_t lanes = kMostLanes / channels * channels, pixels = count / channels;
  Lanes sums;
  SumLanes(
      lanes, count, [image](size_t i) { return image[i]; }, sums);
  // The means, by lane.
  for (size_t c = 0; c < channels; ++c) {
    for (size_t l = c + channels; l < lanes; l += channels) sums[c] += sums[l];
    sums[c] /= static_cast<float>(pixels);
    for (size_t l = c + channels; l < lanes; l += channels) sums[l] = sums[c];
  }
  for (size_t i = 0; i < count; i += lanes) {
    const size_t width = std::min(lanes, count - i);
    for (size_t l = 0; l < width; ++l) image[i + l] = (image[i + l] - sums[l]) * factor + sums[l];
  }
}

void Augmentation::Normalize(float* image) const {
  const auto count = static_cast<size_t>(features());
  if (options_.whitening) {
    const float mean = Sum(count, [image](size_t i) { return image[i]; }) / static_cast<float>(count);
    const float squares =
        Sum(count, [image, mean](size_t i) { return (image[i] - mean) * (image[i] - mean); });
    // The tutorial's images have values from 0 to 255; the bound is 1 / √count there, so that uniform images
    // do not divide by zero.
    const float bound = plan_.scale / std::sqrt(static_cast<float>(count));
    const float inverse = 1 / std::max(std::sqrt(squares / static_cast<float>(count)), bound);
    for (size_t i = 0; i < count; ++i) image[i] = (image[i] - mean) * inverse;
  }
  if (mean_.empty()) return;
  for (size_t i = 0; i < count; i += mean_.size()) {
    for (size_t j = 0; j < mean_.size(); ++j)
      image[i + j] = (image[i + j] - mean_[j]) * inverse_deviation_[j];
  }
}

}  // namespace lockstep::trainer::data
