#include "trainer/layer_report.h"

#include "common/device_name.h"

namespace lockstep::trainer {
namespace {

// As a manifest says it.
std::string TypeOf(LayerKind kind) {
  switch (kind) {
    case LayerKind::kDense:
      return "Dense";
    case LayerKind::kConv2D:
      return "Conv2D";
    case LayerKind::kMaxPool2D:
      return "MaxPool2D";
    case LayerKind::kAveragePool2D:
      return "AveragePool2D";
    case LayerKind::kGlobalAveragePool2D:
      return "GlobalAveragePool2D";
    case LayerKind::kLocalResponseNormalization:
      return "LocalResponseNormalization";
    case LayerKind::kBatchNormalization:
      return "BatchNormalization";
    case LayerKind::kLayerNormalization:
      return "LayerNormalization";
    case LayerKind::kActivation:
      return "Activation";
    case LayerKind::kDropout:
      return "Dropout";
    case LayerKind::kFlatten:
      return "Flatten";
    case LayerKind::kEmbedding:
      return "Embedding";
    case LayerKind::kResidual:
      return "Residual";
  }
  return "?";
}

std::string WithCommas(const Shape& shape) {
  std::string text;
  for (const int64_t dim : shape.dims()) text += (text.empty() ? "" : ",") + std::to_string(dim);
  return text;
}

}  // namespace

void TellLayers(const LayersHere& here, const ProcessEnvironment& environment, EventWriter& events) {
  const LayerRange range = here.part.value_or(LayerRange{.first = 0, .last = here.layers.size() - 1});
  Shape shape = here.sample;
  for (size_t i = 0; i <= range.last && i < here.layers.size(); ++i) {
    const LayerConfig& layer = here.layers[i];
    shape = FactsOf(layer, shape).output;
    if (i < range.first) continue;
    // NameOf is "GPU:1", or of what has no such name something that is shown as it is.
    std::string device = here.device_of(layer);
    if (Result<DeviceName> name = ParseDeviceName(device); name.ok()) {
      name->job = environment.role;
      name->replica = 0;
      name->task = environment.role_rank;
      device = name->Full();
    }
    events.Write(contract::LayerEvent{.index = static_cast<int64_t>(i),
                                      .name = layer.name,
                                      .type = TypeOf(layer.kind),
                                      .output = WithCommas(shape),
                                      .device = device});
  }
}

}  // namespace lockstep::trainer
