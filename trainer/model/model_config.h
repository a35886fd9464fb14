#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/backend/kernels.h"
#include "trainer/layers/initializer.h"
#include "trainer/layers/layer_config.h"

namespace lockstep::trainer {

// Float32 master weights, gradients, optimizer state and losses in every case; the precision is that of the
// products' inputs: TF32 is float32 rounded to 10 bits of fraction within the product.
enum class Precision { kFloat32, kTf32, kBFloat16 };

constexpr const char* PrecisionName(Precision precision) {
  switch (precision) {
    case Precision::kFloat32:
      return "Float32";
    case Precision::kTf32:
      return "TF32";
    case Precision::kBFloat16:
      return "BFloat16";
  }
  return "?";
}
// The type in which layers hand values on, and their products take them.
constexpr DataType ComputeType(Precision precision) {
  return precision == Precision::kBFloat16 ? DataType::kBFloat16 : DataType::kFloat32;
}

enum class Metric { kAccuracy };

// What a manifest's trainer.model says, as plain structs.
struct ModelConfig {
  std::vector<LayerConfig> layers;  // from the input to the output
  LossKind loss = LossKind::kSparseCategoricalCrossentropy;
  float label_smoothing = 0;  // of cross-entropy, in [0, 1); see LossOptions
  std::vector<Metric> metrics;
};

}  // namespace lockstep::trainer
