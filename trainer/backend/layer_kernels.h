#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <variant>

#include "trainer/backend/kernels.h"

// Kernels of the layers other than Dense. All are of float32. Images are [height, width, channels], the last
// contiguous, and a batch is images one after another; 0 < n <= max_batch.
namespace lockstep::trainer {

struct ImageShape {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  int64_t pixels() const { return height * width; }
  int64_t features() const { return pixels() * channels; }
};

// A window that moves over an image. What is right and below is padded as the number of outputs needs it.
struct Window {
  int64_t height = 1;
  int64_t width = 1;
  int64_t stride_height = 1;
  int64_t stride_width = 1;
  int64_t pad_top = 0;
  int64_t pad_left = 0;
};

// y = activation(x * kernel + bias), kernel [height, width, channels, filters]; a ProductKernel does it.
struct Conv2DOptions {
  ImageShape input;
  ImageShape output;  // its channels are the filters
  Window window;
  bool bias = true;
  bool relu = false;
  bool input_gradient = true;
  bool tf32 = false;  // as in DenseOptions
  int64_t max_batch = 0;
};

// The largest, or the mean, of a window; of padding nothing counts.
struct PoolOptions {
  ImageShape input;
  ImageShape output;
  Window window;
  bool maximum = true;
};
// The mean over all pixels, by channel.
struct GlobalAveragePoolOptions {
  ImageShape input;
};
// y_c = x_c / (bias + alpha · Σ x_j² over the channels j with |j − c| <= radius)^beta (Krizhevsky, Sutskever,
// Hinton: ImageNet Classification with Deep Convolutional Neural Networks, 3.3; tf.nn.lrn).
struct LocalResponseOptions {
  ImageShape input;
  int64_t radius = 5;
  float bias = 1;
  float alpha = 1;
  float beta = 0.5;
};
enum class Function {
  kRelu,
  kGelu,     // x · Φ(x), Φ the normal distribution's (Hendrycks, Gimpel: Gaussian Error Linear Units)
  kSoftmax,  // over the last axis
};
struct ActivationOptions {
  Function function = Function::kRelu;
  int64_t features = 0;  // of a sample
  int64_t last_axis = 0;
};
using FunctionOptions =
    std::variant<PoolOptions, GlobalAveragePoolOptions, LocalResponseOptions, ActivationOptions>;

// A function of the activations alone.
class FunctionKernel {
 public:
  virtual ~FunctionKernel() = default;
  // What Forward leaves for Backward, for n samples.
  virtual size_t saved_bytes(int64_t /*n*/) const { return 0; }
  virtual void Forward(int64_t n, const float* x, float* y, void* saved) = 0;
  // `saved` as Forward left it. Writes dx; may overwrite dy.
  virtual void Backward(int64_t n, const float* x, const float* y, const void* saved, float* dy,
                        float* dx) = 0;
};

// Normalised over the batch and the pixels, by channel (Ioffe, Szegedy: Batch Normalization).
struct BatchNormalizationOptions {
  int64_t pixels = 1;
  int64_t channels = 0;
  float momentum = 0.99F;
  float epsilon = 1e-3F;
  bool relu = false;
  int64_t max_batch = 0;
};

// y = activation(gamma · (x − mean) / √(variance + epsilon) + beta). In training mean and variance are the
// batch's, and moving = moving · momentum + batch's · (1 − momentum); else they are the moving ones. As
// Keras, the moving variance is that of the batch, not divided by one less.
class BatchNormalizationKernel {
 public:
  virtual ~BatchNormalizationKernel() = default;

  struct Variables {
    const float* gamma = nullptr;  // null: 1
    const float* beta = nullptr;   // null: 0
    float* dgamma = nullptr;
    float* dbeta = nullptr;
  };
  virtual void Bind(const Variables& variables) = 0;

  // [channels] each, in host memory.
  virtual void ExportState(float* mean, float* variance) const = 0;
  virtual void ImportMean(const float* mean) = 0;
  virtual void ImportVariance(const float* variance) = 0;

  // Of the statistics in training; the batch is then that of all replicas. Empty: this one's own.
  using SumOverReplicas = std::function<void(std::span<double>)>;

  virtual size_t saved_bytes() const = 0;
  // n may be 0 when `sum` is given; a batch without any sample changes nothing.
  virtual void Forward(int64_t n, const float* x, float* y, void* saved, bool training,
                       const SumOverReplicas& sum) = 0;
  // After Forward in training. Leaves dy. `dx` may be null.
  virtual void Backward(int64_t n, const float* x, const float* y, const void* saved, const float* dy,
                        float* dx, const SumOverReplicas& sum) = 0;
};

// Normalised over the last axis, row by row (Ba, Kiros, Hinton: Layer Normalization); gamma, beta
// [last_axis].
struct LayerNormalizationOptions {
  int64_t rows = 1;  // of a sample
  int64_t last_axis = 0;
  float epsilon = 1e-3F;
};

// Rows of a table, by number. x are the numbers, as floats.
struct EmbeddingOptions {
  int64_t positions = 1;  // of a sample
  int64_t entries = 0;
  int64_t width = 0;
};

// Kernels with row-major variables.
class RowKernel {
 public:
  virtual ~RowKernel() = default;
  struct Variables {
    const float* values[2] = {nullptr, nullptr};  // gamma and beta, or null; or the table
    float* gradients[2] = {nullptr, nullptr};
  };
  virtual void Bind(const Variables& variables) = 0;
  // Throws BadData for a number that the table does not have.
  virtual void Forward(int64_t n, const float* x, float* y) = 0;
  virtual void Backward(int64_t n, const float* x, const float* dy, float* dx) = 0;
};

// Which values stay, by (seed, epoch, sample, stream) and the value's place in its sample.
struct DropoutKeys {
  uint64_t seed = 0;
  uint32_t epoch = 0;
  uint32_t stream = 0;
  std::span<const uint32_t> samples;  // [n]
};

// mask [n, features] = 1 with probability 1 − rate, else 0; y = x · mask / (1 − rate) (Srivastava et al.:
// Dropout, inverted).
class DropoutKernel {
 public:
  virtual ~DropoutKernel() = default;
  virtual size_t saved_bytes(int64_t n) const = 0;
  virtual void Forward(int64_t n, const float* x, float* y, void* saved, const DropoutKeys& keys) = 0;
  virtual void Backward(int64_t n, const void* saved, const float* dy, float* dx) = 0;
};

}  // namespace lockstep::trainer
