#include "trainer/layers/function_layer.h"

#include <optional>

#include "trainer/error.h"
#include "trainer/layers/image.h"

namespace lockstep::trainer {
namespace {

PlacedWindow PlacePool(const LayerConfig& config, const ImageShape& input) {
  const int64_t strides[2] = {config.strides[0] == 0 ? config.pool_size[0] : config.strides[0],
                              config.strides[1] == 0 ? config.pool_size[1] : config.strides[1]};
  return PlaceWindow(config, input, config.pool_size, strides, input.channels);
}

// None: it does nothing.
std::optional<FunctionOptions> OptionsFor(const LayerConfig& config, const Shape& input) {
  switch (config.kind) {
    case LayerKind::kMaxPool2D:
    case LayerKind::kAveragePool2D: {
      const ImageShape image = ImageOf(config, input);
      const PlacedWindow placed = PlacePool(config, image);
      return PoolOptions{.input = image,
                         .output = placed.output,
                         .window = placed.window,
                         .maximum = config.kind == LayerKind::kMaxPool2D};
    }
    case LayerKind::kGlobalAveragePool2D:
      return GlobalAveragePoolOptions{.input = ImageOf(config, input)};
    case LayerKind::kLocalResponseNormalization:
      return LocalResponseOptions{.input = ImageOf(config, input),
                                  .radius = config.depth_radius,
                                  .bias = static_cast<float>(config.response_bias),
                                  .alpha = static_cast<float>(config.alpha),
                                  .beta = static_cast<float>(config.beta)};
    default:
      break;
  }
  ActivationOptions options{.features = input.num_elements(), .last_axis = input[input.rank() - 1]};
  switch (config.activation) {
    case Activation::kNone:
      return std::nullopt;
    case Activation::kRelu:
      options.function = Function::kRelu;
      break;
    case Activation::kGelu:
      options.function = Function::kGelu;
      break;
    case Activation::kSoftmax:
      options.function = Function::kSoftmax;
      break;
  }
  return options;
}

}  // namespace

LayerFacts FunctionFacts(const LayerConfig& config, const Shape& input) {
  switch (config.kind) {
    case LayerKind::kMaxPool2D:
    case LayerKind::kAveragePool2D:
      return {.output = ShapeOf(PlacePool(config, ImageOf(config, input)).output)};
    case LayerKind::kGlobalAveragePool2D:
      return {.output = {ImageOf(config, input).channels}};
    case LayerKind::kLocalResponseNormalization:
      ImageOf(config, input);
      if (config.depth_radius < 0 || !(config.response_bias > 0) || !(config.alpha >= 0)) {
        throw BadModel("layer " + config.name +
                       ": depthRadius and alpha must be at least 0, and bias greater than 0");
      }
      break;
    default:
      break;
  }
  return {.output = input};
}

FunctionLayer::FunctionLayer(const LayerConfig& config, const LayerContext& context, Backend& backend)
    : PlainLayer(config, context) {
  const std::optional<FunctionOptions> options = OptionsFor(config, context.input);
  if (!options) return;
  kernel_ = backend.MakeFunction(*options);
  saved_bytes_ = kernel_->saved_bytes(context.max_batch);
}

}  // namespace lockstep::trainer
