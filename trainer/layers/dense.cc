#include "trainer/layers/dense.h"

#include <algorithm>

#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

constexpr int kKernel = 0;

DenseOptions OptionsFor(const LayerConfig& config, const LayerContext& context) {
  if (config.units <= 0) {
    throw BadModel("layer " + config.name + ": units is " + std::to_string(config.units) +
                   "; it must be at least 1");
  }
  if (!(config.kernel_l2 >= 0)) {
    throw BadModel("layer " + config.name + ": l2 is " + std::to_string(config.kernel_l2) +
                   "; it must be at least 0");
  }
  return {.inputs = context.inputs,
          .units = config.units,
          .bias = config.use_bias,
          .relu = config.activation == Activation::kRelu,
          .input_gradient = !context.first,
          .input = context.compute,
          .output = context.last ? DataType::kFloat32 : context.compute,
          .tf32 = context.tf32,
          .max_batch = context.max_batch};
}

}  // namespace

Dense::Dense(const LayerConfig& config, const LayerContext& context, Backend& backend)
    : name_(config.name), options_(OptionsFor(config, context)), kernel_(backend.MakeDense(options_)) {
  variables_.push_back({.name = "kernel",
                        .shape = {options_.inputs, options_.units},
                        .stored_size = kernel_->stored_size(),
                        .initializer = config.kernel_initializer,
                        .l2 = config.kernel_l2});
  if (options_.bias) {
    variables_.push_back({.name = "bias", .shape = {options_.units}, .stored_size = options_.units});
  }
}

int64_t Dense::training_flops() const {
  return (options_.input_gradient ? 6 : 4) * options_.inputs * options_.units;
}

void Dense::FromCanonical(int index, const float* canonical, float* stored) const {
  if (index == kKernel) return kernel_->FromCanonical(canonical, stored);
  std::copy_n(canonical, options_.units, stored);
}

void Dense::ToCanonical(int index, const float* stored, float* canonical) const {
  if (index == kKernel) return kernel_->ToCanonical(stored, canonical);
  std::copy_n(stored, options_.units, canonical);
}

void Dense::Bind(const std::vector<BoundVariable>& variables) {
  DenseKernel::Variables bound{.kernel = variables[0].value, .dkernel = variables[0].gradient};
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
