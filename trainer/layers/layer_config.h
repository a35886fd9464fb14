#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/backend/backend.h"
#include "trainer/layers/initializer.h"
#include "trainer/layers/layer.h"

namespace lockstep::trainer {

enum class LayerKind {
  kDense,
  kConv2D,
  kMaxPool2D,
  kAveragePool2D,
  kGlobalAveragePool2D,
  kLocalResponseNormalization,
  kBatchNormalization,
  kLayerNormalization,
  kActivation,
  kDropout,
  kFlatten,
  kEmbedding,
  kResidual,
};
enum class Activation { kNone, kRelu, kGelu, kSoftmax };
enum class Padding { kValid, kSame };

// Fields have a meaning for the kinds that their comments name, and are as in Keras.
struct LayerConfig {
  LayerKind kind = LayerKind::kDense;
  std::string name;                           // empty: dense, dense_1, … as Keras names them
  int64_t units = 0;                          // Dense
  Activation activation = Activation::kNone;  // Dense, Conv2D, BatchNormalization, Activation, Residual
  bool use_bias = true;                       // Dense, Conv2D
  Initializer kernel_initializer = Initializer::kGlorotUniform;  // Dense, Conv2D
  Initializer bias_initializer = Initializer::kZeros;            // Dense, Conv2D
  double kernel_l2 = 0;                                          // Dense, Conv2D
  int64_t filters = 0;                                           // Conv2D
  int64_t kernel_size[2] = {0, 0};                               // Conv2D: height and width
  int64_t pool_size[2] = {2, 2};                                 // pools
  int64_t strides[2] = {0, 0};        // Conv2D: 0 is 1; pools: 0 is the pool's size
  Padding padding = Padding::kValid;  // Conv2D, pools
  int64_t depth_radius = 5;           // LocalResponseNormalization, as tf.nn.lrn
  double response_bias = 1;
  double alpha = 1;
  double beta = 0.5;
  double momentum = 0.99;             // BatchNormalization
  double epsilon = 1e-3;              // BatchNormalization, LayerNormalization
  bool center = true;                 // both: whether there is a beta
  bool scale = true;                  // both: whether there is a gamma
  bool synchronised = false;          // BatchNormalization: its batch is that of all replicas
  double rate = 0.5;                  // Dropout
  int64_t input_dim = 0;              // Embedding: entries of the table
  int64_t output_dim = 0;             // Embedding: how long one is
  std::vector<LayerConfig> body;      // Residual: y = activation(body(x) + shortcut(x))
  std::vector<LayerConfig> shortcut;  // Residual; empty: x itself
};

// Where a layer stands in its model.
struct LayerContext {
  Shape input;                            // of a sample
  DataType compute = DataType::kFloat32;  // of the products; inputs come in this type
  bool tf32 = false;                      // see DenseOptions
  bool input_gradient = true;             // a gradient of its inputs is wanted
  bool last = false;                      // its outputs are float32
  int64_t max_batch = 0;
  int passes_in_flight = 1;  // forward passes whose backward pass is still to come, at most
  std::string scope;         // what stands before its name: "residual/" within that block
  // Where a layer computes, by its name, if not on the model's backend; see placed.h.
  std::function<Backend&(const LayerConfig& layer)> place;
};

// What follows from a layer's config and its inputs' shape alone, on any backend.
struct LayerFacts {
  Shape output;                         // of a sample
  std::vector<VariableSpec> variables;  // but for stored_size
  int64_t forward_flops = 0;            // a sample, of products
};
// Throws BadModel for a config out of range.
LayerFacts FactsOf(const LayerConfig& config, const Shape& input);

// What a backend must have for the layer.
std::vector<Op> OpsOf(const LayerConfig& config);

// Throws BadModel for a config out of range and Unsupported for what the backend lacks.
std::unique_ptr<Layer> MakeLayer(const LayerConfig& config, const LayerContext& context, Backend& backend);

// With a name for each that has none: dense, dense_1, dense_2 …
std::vector<LayerConfig> WithNames(std::vector<LayerConfig> layers);

}  // namespace lockstep::trainer
