#include "trainer/layers/row_layers.h"

#include <string>

#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

std::unique_ptr<RowKernel> MakeKernel(const LayerConfig& config, const Shape& input, Backend& backend) {
  if (config.kind == LayerKind::kEmbedding) {
    return backend.MakeEmbedding(
        {.positions = input.num_elements(), .entries = config.input_dim, .width = config.output_dim});
  }
  const int64_t last = input[input.rank() - 1];
  return backend.MakeLayerNormalization({.rows = input.num_elements() / last,
                                         .last_axis = last,
                                         .epsilon = static_cast<float>(config.epsilon)});
}

}  // namespace

LayerFacts EmbeddingFacts(const LayerConfig& config, const Shape& input) {
  if (config.input_dim < 1 || config.output_dim < 1) {
    throw BadModel("layer " + config.name + ": inputDim is " + std::to_string(config.input_dim) +
                   " and outputDim " + std::to_string(config.output_dim) + "; both must be at least 1");
  }
  if (input.rank() != 1) {
    throw BadModel("layer " + config.name + ": its inputs are " + input.ToString() +
                   "; it takes rows of numbers");
  }
  LayerFacts facts{.output = {input[0], config.output_dim}};
  facts.variables.push_back({.name = "embeddings",
                             .shape = {config.input_dim, config.output_dim},
                             .initializer = config.kernel_initializer,
                             .decays = true});
  return facts;
}

RowLayer::RowLayer(const LayerConfig& config, const LayerContext& context, Backend& backend)
    : PlainLayer(config, context), kernel_(MakeKernel(config, context.input, backend)) {
  if (config.kind == LayerKind::kEmbedding) {
    if (context.input_gradient) {
      throw BadModel("layer " + config.name +
                     ": there is no gradient of numbers; no layer before it may have variables");
    }
    places_ = {0};
    return;
  }
  if (config.scale) places_.push_back(0);
  if (config.center) places_.push_back(1);
}

void RowLayer::Bind(const std::vector<BoundVariable>& variables) {
  RowKernel::Variables bound;
  for (size_t i = 0; i < variables.size(); ++i) {
    bound.values[places_[i]] = variables[i].value;
    bound.gradients[places_[i]] = variables[i].gradient;
  }
  kernel_->Bind(bound);
}

}  // namespace lockstep::trainer
