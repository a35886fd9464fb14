#include "trainer/layers/layer_config.h"

#include <map>
#include <string_view>

#include "trainer/error.h"
#include "trainer/layers/batch_normalization.h"
#include "trainer/layers/block.h"
#include "trainer/layers/conv2d.h"
#include "trainer/layers/dense.h"
#include "trainer/layers/dropout.h"
#include "trainer/layers/flatten.h"
#include "trainer/layers/function_layer.h"
#include "trainer/layers/residual.h"
#include "trainer/layers/row_layers.h"

namespace lockstep::trainer {
namespace {

// Keras' class names in snake case.
std::string_view BaseName(LayerKind kind) {
  switch (kind) {
    case LayerKind::kDense:
      return "dense";
    case LayerKind::kConv2D:
      return "conv2d";
    case LayerKind::kMaxPool2D:
      return "max_pool2d";
    case LayerKind::kAveragePool2D:
      return "average_pool2d";
    case LayerKind::kGlobalAveragePool2D:
      return "global_average_pool2d";
    case LayerKind::kLocalResponseNormalization:
      return "local_response_normalization";
    case LayerKind::kBatchNormalization:
      return "batch_normalization";
    case LayerKind::kLayerNormalization:
      return "layer_normalization";
    case LayerKind::kActivation:
      return "activation";
    case LayerKind::kDropout:
      return "dropout";
    case LayerKind::kFlatten:
      return "flatten";
    case LayerKind::kEmbedding:
      return "embedding";
    case LayerKind::kResidual:
      return "residual";
  }
  return "layer";
}

// Whether its activation is one that its own kernel does not do.
bool NeedsActivation(const LayerConfig& config) {
  const bool has = config.kind == LayerKind::kDense || config.kind == LayerKind::kConv2D ||
                   config.kind == LayerKind::kBatchNormalization;
  return has && (config.activation == Activation::kGelu || config.activation == Activation::kSoftmax);
}

}  // namespace

LayerFacts FactsOf(const LayerConfig& config, const Shape& input) {
  switch (config.kind) {
    case LayerKind::kDense:
      return DenseFacts(config, input);
    case LayerKind::kConv2D:
      return Conv2DFacts(config, input);
    case LayerKind::kMaxPool2D:
    case LayerKind::kAveragePool2D:
    case LayerKind::kGlobalAveragePool2D:
    case LayerKind::kLocalResponseNormalization:
    case LayerKind::kActivation:
      return FunctionFacts(config, input);
    case LayerKind::kBatchNormalization:
    case LayerKind::kLayerNormalization:
      return NormalizationFacts(config, input);
    case LayerKind::kDropout:
      return DropoutFacts(config, input);
    case LayerKind::kFlatten:
      return {.output = {input.num_elements()}};
    case LayerKind::kEmbedding:
      return EmbeddingFacts(config, input);
    case LayerKind::kResidual:
      return ResidualFacts(config, input);
  }
  return {};
}

std::vector<Op> OpsOf(const LayerConfig& config) {
  std::vector<Op> ops;
  switch (config.kind) {
    case LayerKind::kDense:
      ops = {Op::kDense};
      break;
    case LayerKind::kConv2D:
      ops = {Op::kConv2D};
      break;
    case LayerKind::kMaxPool2D:
    case LayerKind::kAveragePool2D:
    case LayerKind::kGlobalAveragePool2D:
      return {Op::kPool};
    case LayerKind::kLocalResponseNormalization:
      return {Op::kLocalResponseNormalization};
    case LayerKind::kBatchNormalization:
      ops = {Op::kBatchNormalization};
      break;
    case LayerKind::kLayerNormalization:
      return {Op::kLayerNormalization};
    case LayerKind::kDropout:
      return {Op::kDropout};
    case LayerKind::kEmbedding:
      return {Op::kEmbedding};
    case LayerKind::kResidual:
      ops = {Op::kAdd};
      for (const auto* layers : {&config.body, &config.shortcut}) {
        for (const LayerConfig& layer : *layers) {
          const std::vector<Op> inner = OpsOf(layer);
          ops.insert(ops.end(), inner.begin(), inner.end());
        }
      }
      return ops;
    case LayerKind::kActivation:
      if (config.activation != Activation::kNone) return {Op::kActivation};
      break;
    case LayerKind::kFlatten:
      break;
  }
  if (NeedsActivation(config)) ops.push_back(Op::kActivation);
  return ops;
}

std::unique_ptr<Layer> MakeLayer(const LayerConfig& config, const LayerContext& context, Backend& backend) {
  for (const Op op : OpsOf(config)) backend.Require(op, context.compute);
  if (NeedsActivation(config)) return std::make_unique<Activated>(config, context, backend);
  switch (config.kind) {
    case LayerKind::kDense:
      return std::make_unique<Dense>(config, context, backend);
    case LayerKind::kConv2D:
      return std::make_unique<Conv2D>(config, context, backend);
    case LayerKind::kMaxPool2D:
    case LayerKind::kAveragePool2D:
    case LayerKind::kGlobalAveragePool2D:
    case LayerKind::kLocalResponseNormalization:
    case LayerKind::kActivation:
      return std::make_unique<FunctionLayer>(config, context, backend);
    case LayerKind::kBatchNormalization:
      return std::make_unique<BatchNormalization>(config, context, backend);
    case LayerKind::kLayerNormalization:
    case LayerKind::kEmbedding:
      return std::make_unique<RowLayer>(config, context, backend);
    case LayerKind::kDropout:
      return std::make_unique<Dropout>(config, context, backend);
    case LayerKind::kFlatten:
      return std::make_unique<Flatten>(config, context);
    case LayerKind::kResidual:
      return std::make_unique<Residual>(config, context, backend);
  }
  return nullptr;
}

std::vector<LayerConfig> WithNames(std::vector<LayerConfig> layers) {
  std::map<LayerKind, int> counts;
  for (LayerConfig& layer : layers) {
    const int number = counts[layer.kind]++;
    if (!layer.name.empty()) continue;
    layer.name = BaseName(layer.kind);
    if (number > 0) layer.name += "_" + std::to_string(number);
  }
  return layers;
}

}  // namespace lockstep::trainer
