#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trainer/backend/backend.h"
#include "trainer/layers/initializer.h"
#include "trainer/layers/layer.h"

namespace lockstep::trainer {

enum class LayerKind { kDense };
enum class Activation { kNone, kRelu };

struct LayerConfig {
  LayerKind kind = LayerKind::kDense;
  std::string name;  // empty: dense, dense_1, … as Keras names them
  int64_t units = 0;
  Activation activation = Activation::kNone;
  bool use_bias = true;
  Initializer kernel_initializer = Initializer::kGlorotUniform;
  double kernel_l2 = 0;
};

// Where a layer stands in its model.
struct LayerContext {
  int64_t inputs = 0;                     // features a sample
  DataType compute = DataType::kFloat32;  // of the products; inputs come in this type
  bool tf32 = false;                      // see DenseOptions
  bool first = false;                     // no gradient of its inputs is wanted
  bool last = false;                      // its outputs are float32
  int64_t max_batch = 0;
};

// Throws BadModel for a config out of range and Unsupported for what the backend lacks.
std::unique_ptr<Layer> MakeLayer(const LayerConfig& config, const LayerContext& context, Backend& backend);

}  // namespace lockstep::trainer
