#include "trainer/layers/conv2d.h"

#include "trainer/error.h"
#include "trainer/layers/image.h"

namespace lockstep::trainer {
namespace {

constexpr int kKernel = 0;

PlacedWindow Place(const LayerConfig& config, const ImageShape& input) {
  const int64_t strides[2] = {config.strides[0] == 0 ? 1 : config.strides[0],
                              config.strides[1] == 0 ? 1 : config.strides[1]};
  return PlaceWindow(config, input, config.kernel_size, strides, config.filters);
}

Conv2DOptions OptionsFor(const LayerConfig& config, const LayerContext& context) {
  const ImageShape input = ImageOf(config, context.input);
  const PlacedWindow placed = Place(config, input);
  return {.input = input,
          .output = placed.output,
          .window = placed.window,
          .bias = config.use_bias,
          .relu = config.activation == Activation::kRelu,
          .input_gradient = context.input_gradient,
          .tf32 = context.tf32,
          .max_batch = context.max_batch};
}

}  // namespace

LayerFacts Conv2DFacts(const LayerConfig& config, const Shape& input) {
  if (config.filters < 1) {
    throw BadModel("layer " + config.name + ": filters is " + std::to_string(config.filters) +
                   "; it must be at least 1");
  }
  const ImageShape image = ImageOf(config, input);
  const PlacedWindow placed = Place(config, image);
  const Shape kernel{placed.window.height, placed.window.width, image.channels, config.filters};
  LayerFacts facts{.output = ShapeOf(placed.output),
                   .forward_flops = 2 * kernel.num_elements() * placed.output.pixels()};
  facts.variables.push_back({.name = "kernel",
                             .shape = kernel,
                             .initializer = config.kernel_initializer,
                             .l2 = config.kernel_l2,
                             .decays = true});
  if (config.use_bias) {
    facts.variables.push_back(
        {.name = "bias", .shape = {config.filters}, .initializer = config.bias_initializer});
  }
  return facts;
}

Conv2D::Conv2D(const LayerConfig& config, const LayerContext& context, Backend& backend)
    : PlainLayer(config, context),
      keeps_gradient_(config.activation != Activation::kRelu),
      kernel_(backend.MakeConv2D(OptionsFor(config, context))) {
  facts_.variables[kKernel].stored_size = kernel_->stored_size();
}

void Conv2D::FromCanonical(int index, const float* canonical, float* stored) const {
  index == kKernel ? kernel_->FromCanonical(canonical, stored)
                   : PlainLayer::FromCanonical(index, canonical, stored);
}

void Conv2D::ToCanonical(int index, const float* stored, float* canonical) const {
  index == kKernel ? kernel_->ToCanonical(stored, canonical)
                   : PlainLayer::ToCanonical(index, stored, canonical);
}

void Conv2D::Bind(const std::vector<BoundVariable>& variables) {
  ProductKernel::Variables bound{.kernel = variables[0].value, .dkernel = variables[0].gradient};
  if (variables.size() > 1) {
    bound.bias = variables[1].value;
    bound.dbias = variables[1].gradient;
  }
  kernel_->Bind(bound);
}

void Conv2D::ParametersChanged(int index, int64_t begin, int64_t end) {
  index == kKernel ? kernel_->KernelChanged(begin, end) : kernel_->BiasChanged(begin, end);
}

}  // namespace lockstep::trainer
