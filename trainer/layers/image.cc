#include "trainer/layers/image.h"

#include <algorithm>
#include <string>

#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

struct Axis {
  int64_t outputs = 0;
  int64_t before = 0;
};

Axis PlaceAlong(const LayerConfig& config, int64_t extent, int64_t size, int64_t stride) {
  if (size < 1 || stride < 1) {
    throw BadModel("layer " + config.name + ": a window of " + std::to_string(size) + " and a stride of " +
                   std::to_string(stride) + "; both must be at least 1");
  }
  if (config.padding == Padding::kSame) {
    const int64_t outputs = (extent + stride - 1) / stride;
    return {outputs, std::max<int64_t>(0, (outputs - 1) * stride + size - extent) / 2};
  }
  if (size > extent) {
    throw BadModel("layer " + config.name + ": a window of " + std::to_string(size) + " over " +
                   std::to_string(extent) + "; with padding: Same it may be larger than its image");
  }
  return {(extent - size) / stride + 1, 0};
}

}  // namespace

ImageShape ImageOf(const LayerConfig& config, const Shape& input) {
  if (input.rank() == 3) return {input[0], input[1], input[2]};
  throw BadModel("layer " + config.name + ": its inputs are " + input.ToString() +
                 "; it takes images, [height, width, channels]");
}

PlacedWindow PlaceWindow(const LayerConfig& config, const ImageShape& input, const int64_t (&size)[2],
                         const int64_t (&strides)[2], int64_t channels) {
  const Axis vertical = PlaceAlong(config, input.height, size[0], strides[0]);
  const Axis horizontal = PlaceAlong(config, input.width, size[1], strides[1]);
  return {.window = {.height = size[0],
                     .width = size[1],
                     .stride_height = strides[0],
                     .stride_width = strides[1],
                     .pad_top = vertical.before,
                     .pad_left = horizontal.before},
          .output = {vertical.outputs, horizontal.outputs, channels}};
}

}  // namespace lockstep::trainer
