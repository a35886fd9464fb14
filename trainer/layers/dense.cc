#include "trainer/layers/dense.h"

#include <algorithm>

#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

constexpr int kKernel = 0;

DenseOptions OptionsFor(const LayerConfig& config, const LayerContext& context) {
  return {.inputs = context.input.num_elements(),
          .units = config.units,
          .bias = config.use_bias,
          .relu = config.activation == Activation::kRelu,
          .input_gradient = context.input_gradient,
          .input = context.compute,
          .output = context.last ? DataType::kFloat32 : context.compute,
          .tf32 = context.tf32,
          .max_batch = context.max_batch};
}

}  // namespace

LayerFacts DenseFacts(const LayerConfig& config, const Shape& input) {
  if (config.units <= 0) {
    throw BadModel("layer " + config.name + ": units is " + std::to_string(config.units) +
                   "; it must be at least 1");
  }
  if (!(config.kernel_l2 >= 0)) {
    throw BadModel("layer " + config.name + ": l2 is " + std::to_string(config.kernel_l2) +
                   "; it must be at least 0");
  }
  const int64_t inputs = input.num_elements();
  LayerFacts facts{.output = {config.units}, .forward_flops = 2 * inputs * config.units};
  facts.variables.push_back({.name = "kernel",
                             .shape = {inputs, config.units},
                             .initializer = config.kernel_initializer,
                             .l2 = config.kernel_l2,
                             .decays = true});
  if (config.use_bias) {
    facts.variables.push_back(
        {.name = "bias", .shape = {config.units}, .initializer = config.bias_initializer});
  }
  return facts;
}

Dense::Dense(const LayerConfig& config, const LayerContext& context, Backend& backend)
    : PlainLayer(config, context),
      options_(OptionsFor(config, context)),
      kernel_(backend.MakeDense(options_)) {
  facts_.variables[kKernel].stored_size = kernel_->stored_size();
}

void Dense::FromCanonical(int index, const float* canonical, float* stored) const {
  if (index == kKernel) return kernel_->FromCanonical(canonical, stored);
  PlainLayer::FromCanonical(index, canonical, stored);
}

void Dense::ToCanonical(int index, const float* stored, float* canonical) const {
  if (index == kKernel) return kernel_->ToCanonical(stored, canonical);
  PlainLayer::ToCanonical(index, stored, canonical);
}

void Dense::Bind(const std::vector<BoundVariable>& variables) {
  ProductKernel::Variables bound{.kernel = variables[0].value, .dkernel = variables[0].gradient};
  if (options_.bias) {
    bound.bias = variables[1].value;
    bound.dbias = variables[1].gradient;
  }
  kernel_->Bind(bound);
}

void Dense::ParametersChanged(int index, int64_t begin, int64_t end) {
  index == kKernel ? kernel_->KernelChanged(begin, end) : kernel_->BiasChanged(begin, end);
}

BFloat16* Dense::rounded(int index) const {
  return index == kKernel ? kernel_->rounded().kernel : kernel_->rounded().bias;
}

}  // namespace lockstep::trainer
