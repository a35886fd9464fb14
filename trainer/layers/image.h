#pragma once

#include "trainer/backend/layer_kernels.h"
#include "trainer/layers/layer_config.h"

// What layers of images have in common.
namespace lockstep::trainer {

// Throws BadModel, naming the layer, unless it is [height, width, channels].
ImageShape ImageOf(const LayerConfig& config, const Shape& input);
inline Shape ShapeOf(const ImageShape& image) { return {image.height, image.width, image.channels}; }

// A window over an image, placed as TensorFlow places it (tensorflow.org/api_docs/python/tf/nn, notes on
// padding): Same has ⌈extent / stride⌉ outputs, and of an odd padding the larger half is below and to the
// right; Valid has no padding.
struct PlacedWindow {
  Window window;
  ImageShape output;
};
// Throws BadModel, naming the layer, when the window is not within the image.
PlacedWindow PlaceWindow(const LayerConfig& config, const ImageShape& input, const int64_t (&size)[2],
                         const int64_t (&strides)[2], int64_t channels);

}  // namespace lockstep::trainer
