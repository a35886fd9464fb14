#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/tensor/shape.h"

namespace lockstep::trainer::data {

// What is done to images before the model sees them, in this order; brightness and the moments of a
// normalisation are in units of the features, which are stored values times DatasetPlan::scale.
struct AugmentationOptions {
  // A window of this size out of the image with `padding` zeros on each side: anywhere in training, in the
  // middle in evaluation. 0: the whole image.
  int64_t crop_height = 0;
  int64_t crop_width = 0;
  int64_t padding = 0;
  // In training only:
  bool flip = false;      // left and right, one time in two
  double brightness = 0;  // adds a number from [−brightness, brightness)
  double contrast_lower = 1;
  double contrast_upper = 1;  // multiplies the distances to a channel's mean by a number from [lower, upper)
  // Both in training and in evaluation:
  bool whitening = false;  // of each image: mean 0 and standard deviation 1
  std::vector<double> mean;
  std::vector<double> deviation;  // (x − mean) / deviation, by channel; empty: none

  bool none() const;
};

// Turns stored images into what a model is given. What is random is keyed by (seed, epoch, sample) alone: no
// rank and no order of calls decides. Immutable, so safe from every thread; the same bits on every processor.
class Augmentation {
 public:
  // Throws BadData where the samples are no images, or the options do not fit them.
  Augmentation(const AugmentationOptions& options, const DatasetPlan& plan, uint64_t seed);

  Shape output_shape() const { return {height_, width_, plan_.channels}; }
  int64_t features() const { return height_ * width_ * plan_.channels; }

  // One stored sample to `out` [features()].
  void Train(const std::byte* stored, int64_t epoch, uint32_t sample, float* out) const;
  void Evaluate(const std::byte* stored, float* out) const;

 private:
  void Crop(const std::byte* stored, int64_t top, int64_t left, float* out) const;
  void Flip(float* image) const;
  void ChangeContrast(float factor, float* image) const;
  void Normalize(float* image) const;

  AugmentationOptions options_;
  DatasetPlan plan_;
  uint64_t seed_;
  int64_t height_, width_;
  std::vector<float> mean_, inverse_deviation_;  // by element of a row
};

}  // namespace lockstep::trainer::data
