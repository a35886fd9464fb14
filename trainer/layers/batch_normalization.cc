#include "trainer/layers/batch_normalization.h"

#include <algorithm>

#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

constexpr int kMean = 0;

}  // namespace

LayerFacts NormalizationFacts(const LayerConfig& config, const Shape& input) {
  if (!(config.epsilon > 0) || !(config.momentum >= 0 && config.momentum < 1)) {
    throw BadModel("layer " + config.name + ": epsilon must be greater than 0, and momentum in [0, 1)");
  }
  const Shape last{input[input.rank() - 1]};
  LayerFacts facts{.output = input};
  if (config.scale) {
    facts.variables.push_back({.name = "gamma", .shape = last, .initializer = Initializer::kOnes});
  }
  if (config.center) facts.variables.push_back({.name = "beta", .shape = last});
  return facts;
}

BatchNormalization::BatchNormalization(const LayerConfig& config, const LayerContext& context,
                                       Backend& backend)
    : PlainLayer(config, context),
      channels_(context.input[context.input.rank() - 1]),
      scale_(config.scale),
      center_(config.center),
      synchronised_(config.synchronised),
      kernel_(backend.MakeBatchNormalization({.pixels = context.input.num_elements() / channels_,
                                              .channels = channels_,
                                              .momentum = static_cast<float>(config.momentum),
                                              .epsilon = static_cast<float>(config.epsilon),
                                              .relu = config.activation == Activation::kRelu,
                                              .max_batch = context.max_batch})) {}

std::vector<StateSpec> BatchNormalization::state() const {
  return {{.name = "moving_mean", .shape = {channels_}}, {.name = "moving_variance", .shape = {channels_}}};
}

void BatchNormalization::ExportState(int index, float* to) const {
  std::vector<float> mean(static_cast<size_t>(channels_)), variance(static_cast<size_t>(channels_));
  kernel_->ExportState(mean.data(), variance.data());
  const std::vector<float>& wanted = index == kMean ? mean : variance;
  std::copy(wanted.begin(), wanted.end(), to);
}

void BatchNormalization::ImportState(int index, const float* from) {
  index == kMean ? kernel_->ImportMean(from) : kernel_->ImportVariance(from);
}

void BatchNormalization::Bind(const std::vector<BoundVariable>& variables) {
  BatchNormalizationKernel::Variables bound;
  size_t next = 0;
  if (scale_) {
    bound.gamma = variables[next].value;
    bound.dgamma = variables[next++].gradient;
  }
  if (center_) {
    bound.beta = variables[next].value;
    bound.dbeta = variables[next].gradient;
  }
  kernel_->Bind(bound);
}

BatchNormalizationKernel::SumOverReplicas BatchNormalization::SumOf(const Pass& pass) const {
  if (!synchronised_ || !pass.training || pass.replicas == nullptr) return {};
  return [replicas = pass.replicas](std::span<double> values) { replicas->Sum(values); };
}

void BatchNormalization::Forward(const Pass& pass, const LayerMemory& memory) {
  kernel_->Forward(pass.n, static_cast<const float*>(memory.x), static_cast<float*>(memory.y), memory.saved,
                   pass.training, SumOf(pass));
}

void BatchNormalization::Backward(const Pass& pass, const LayerMemory& memory, void* dy, void* dx) {
  kernel_->Backward(pass.n, static_cast<const float*>(memory.x), static_cast<const float*>(memory.y),
                    memory.saved, static_cast<const float*>(dy), static_cast<float*>(dx), SumOf(pass));
}

}  // namespace lockstep::trainer
