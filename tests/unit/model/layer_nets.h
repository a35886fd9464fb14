#pragma once

#include <string>
#include <vector>

#include "trainer/model/model_config.h"
#include "trainer/tensor/shape.h"

// Small networks that between them have every kind of layer; make_layer_golden.py has the same ones.
namespace lockstep::trainer {

struct Net {
  std::string name;
  Shape sample;
  std::vector<LayerConfig> layers;  // with three outputs
  float input_amplitude = 1;
};

inline LayerConfig Conv(int64_t filters, int64_t size, int64_t stride, Activation activation, bool bias) {
  return {.kind = LayerKind::kConv2D,
          .activation = activation,
          .use_bias = bias,
          .filters = filters,
          .kernel_size = {size, size},
          .strides = {stride, stride},
          .padding = Padding::kSame};
}
inline LayerConfig Units(int64_t units, Activation activation = Activation::kNone) {
  return {.kind = LayerKind::kDense, .units = units, .activation = activation};
}
inline LayerConfig Normalized(LayerKind kind = LayerKind::kBatchNormalization) { return {.kind = kind}; }
inline LayerConfig Relu() { return {.kind = LayerKind::kActivation, .activation = Activation::kRelu}; }

inline Net Towers() {
  const LayerConfig pool{
      .kind = LayerKind::kMaxPool2D, .pool_size = {3, 3}, .strides = {2, 2}, .padding = Padding::kSame};
  const LayerConfig average{.kind = LayerKind::kAveragePool2D};
  const LayerConfig first{
      .kind = LayerKind::kLocalResponseNormalization, .depth_radius = 2, .alpha = 0.3, .beta = 0.75};
  const LayerConfig second{.kind = LayerKind::kLocalResponseNormalization, .depth_radius = 4};
  const LayerConfig third{
      .kind = LayerKind::kLocalResponseNormalization, .depth_radius = 1, .response_bias = 2, .beta = 0.6};
  return {.name = "Towers",
          .sample = {9, 9, 3},
          .layers = {Conv(20, 5, 1, Activation::kRelu, true),
                     pool,
                     first,
                     Conv(6, 3, 2, Activation::kNone, true),
                     second,
                     average,
                     third,
                     {.kind = LayerKind::kFlatten},
                     Units(5, Activation::kGelu),
                     Units(3)}};
}

inline Net ResNet() {
  const auto body = [](int64_t filters, int64_t stride) {
    return std::vector<LayerConfig>{Conv(filters, 3, stride, Activation::kNone, false), Normalized(), Relu(),
                                    Conv(filters, 3, 1, Activation::kNone, false), Normalized()};
  };
  const LayerConfig same{.kind = LayerKind::kResidual, .activation = Activation::kRelu, .body = body(4, 1)};
  const LayerConfig smaller{.kind = LayerKind::kResidual,
                            .activation = Activation::kRelu,
                            .body = body(6, 2),
                            .shortcut = {Conv(6, 1, 2, Activation::kNone, false), Normalized()}};
  return {.name = "ResNet",
          .sample = {7, 7, 3},
          .layers = {Conv(4, 3, 1, Activation::kNone, false),
                     Normalized(),
                     Relu(),
                     same,
                     smaller,
                     {.kind = LayerKind::kGlobalAveragePool2D},
                     Units(3)}};
}

inline Net Words() {
  return {.name = "Words",
          .sample = {6},
          .layers = {{.kind = LayerKind::kEmbedding, .input_dim = 7, .output_dim = 4},
                     Normalized(LayerKind::kLayerNormalization),
                     Units(5, Activation::kSoftmax),
                     Units(3)},
          .input_amplitude = 0};
}

}  // namespace lockstep::trainer
