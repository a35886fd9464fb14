#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "trainer/tensor/bfloat16.h"
#include "trainer/tensor/dtype.h"

// What a Backend makes: kernels for one layer, with everything they need cached for each batch size they have
// seen (the first call with a new size may allocate and compile; later ones do neither).
namespace lockstep::trainer {

// y = activation(x · kernel + bias)
struct DenseOptions {
  int64_t inputs = 0;
  int64_t units = 0;
  bool bias = true;
  bool relu = false;
  bool input_gradient = true;            // false for a first layer: dx is never asked for
  DataType input = DataType::kFloat32;   // of x, dx and dy, and of the products: Float32 or BFloat16
  DataType output = DataType::kFloat32;  // of y
  bool tf32 = false;  // Float32 products may round their inputs to TF32 (where Supports says so)
  int64_t max_batch = 0;
};

// What a product, or a convolution, of a layer is done by. Not safe for threads. Buffers of activations are
// dense, row-major: x, dx [n, inputs]; y, dy [n, outputs]; 0 < n <= max_batch.
class ProductKernel {
 public:
  virtual ~ProductKernel() = default;

  // Floats that the kernel variable takes in the flat buffers (>= inputs · units), and the way between its
  // order and row-major [inputs, units], or [height, width, inputs, filters]; exact. Host memory.
  virtual int64_t stored_size() const = 0;
  virtual void FromCanonical(const float* canonical, float* stored) const = 0;
  virtual void ToCanonical(const float* stored, float* canonical) const = 0;

  // Where the variables and their gradients are, from now on; `bias`, `dbias` are null without a bias.
  struct Variables {
    const float* kernel = nullptr;
    const float* bias = nullptr;
    float* dkernel = nullptr;
    float* dbias = nullptr;
  };
  virtual void Bind(const Variables& variables) = 0;
  // Elements [begin, end) of the kernel, as stored, changed: copies in another order or type are to be made
  // anew.
  virtual void KernelChanged(int64_t begin, int64_t end) = 0;
  // The same of the bias, for backends that keep it in another type too.
  virtual void BiasChanged(int64_t /*begin*/, int64_t /*end*/) {}
  // Copies of the variables in BFloat16, in the same order, that the backend's optimizers can write
  // (UpdateBuffers::rounded), instead of the two above; null where it keeps none, or none such.
  struct Rounded {
    BFloat16* kernel = nullptr;
    BFloat16* bias = nullptr;
  };
  virtual Rounded rounded() const { return {}; }

  virtual void Forward(int64_t n, const void* x, void* y) = 0;
  // Writes dkernel, dbias and, unless null, dx. `dy` is overwritten (by the gradient before the activation).
  // Reads the parameters first, and never after it wrote the gradients.
  virtual void Backward(int64_t n, const void* x, const void* y, void* dy, void* dx) = 0;
};

enum class LossKind { kSparseCategoricalCrossentropy, kMeanSquaredError };

struct LossOptions {
  LossKind kind = LossKind::kSparseCategoricalCrossentropy;
  int64_t outputs = 0;
  DataType output_gradient = DataType::kFloat32;
  // Of cross-entropy: the target is 1 − label_smoothing + label_smoothing / outputs for the label and
  // label_smoothing / outputs for each other class (keras/src/losses/losses.py, CategoricalCrossentropy).
  float label_smoothing = 0;
};

struct LossResult {
  double loss_sum = 0;  // over the samples, before any scale
  int64_t correct = 0;  // samples whose largest output is the label's; 0 for MeanSquaredError
};

// A LossResult as a kernel leaves it in the backend's memory.
struct LossSums {
  double loss_sum = 0;
  int64_t correct = 0;
  int64_t wrong = 0;        // 1 + a sample whose label is out of range; 0: none. The rest then means nothing
  int64_t wrong_label = 0;  // its label
};
// `sums` in host memory. Throws BadData if a label was out of [0, outputs), naming sample and label.
LossResult ResultOf(const LossSums& sums, int64_t outputs);

// From the last layer's outputs y [n, outputs], float32. Labels: int32 [n] in [0, outputs) for cross-entropy,
// from logits; float32 [n, outputs] for the mean squared error, which is the mean over the outputs of a
// sample.
class LossKernel {
 public:
  virtual ~LossKernel() = default;
  // Writes *sums (in the backend's memory) and dy [n, outputs] = scale · ∂(loss of the sample)/∂y, or no dy
  // where it is null. With `before`, samples that *sums has already, it adds to them.
  virtual void Compute(int64_t n, const float* y, const void* labels, float scale, void* dy, LossSums* sums,
                       int64_t before = 0) = 0;
};

// Elements [begin, end) of the flat parameters, rounded to BFloat16, are to lie at `to`.
struct RoundedCopy {
  int64_t begin = 0;
  int64_t end = 0;
  BFloat16* to = nullptr;
};

// What of an update changes from step to step.
struct StepRates {
  float rate = 0;   // SgdStep::learning_rate, AdamStep::alpha
  float decay = 0;  // Adjustments::decay
  float keep = 0;   // Backend::MoveAverage's
};

// Of optimizer state, beside the parameters.
inline constexpr int kMostSlots = 3;

// Pointers to whole flat buffers, indexed by the same offsets.
struct UpdateBuffers {
  float* parameters = nullptr;
  const float* gradients = nullptr;
  float* slots[kMostSlots] = {};
  // In the backend's memory, read when the work runs, and then instead of what the call says.
  const StepRates* rates = nullptr;
  // In the backend's memory, read when the work runs: Σ g² over all gradients of the job, where an optimizer
  // clips by their norm.
  const double* squared_norm = nullptr;
  // Written along with the parameters: what kernels of the same backend have as rounded(). Ascending.
  std::span<const RoundedCopy> rounded;
};

// What comes before a rule: g = clamp((gradient + 2 · l2 · w) · scale, ±limit), and w −= decay · w if it
// decays. Keras' formulas (keras/src/optimizers/base_optimizer.py); decoupled decay also as in PyTorch's
// AdamW.
struct Adjustments {
  float l2 = 0;
  // 0: none. Else scale = norm_limit / √squared_norm where that is less than 1 (UpdateBuffers::squared_norm).
  // A norm that is no finite number makes it NaN.
  float norm_limit = 0;
  float limit = std::numeric_limits<float>::infinity();
  bool decays = false;
  float decay = 0;  // learning rate · weight decay

  bool none() const {
    return l2 == 0 && norm_limit == 0 && limit == std::numeric_limits<float>::infinity() && !decays;
  }
};

// g as above in each; Keras' formulas (keras/src/optimizers/{sgd,adam}.py).
// momentum 0: w -= lr · g.  Else v = momentum · v − lr · g; w += nesterov ? momentum · v − lr · g : v.  v is
// slot 0.
struct SgdStep {
  float learning_rate = 0;
  float momentum = 0;
  bool nesterov = false;
  Adjustments adjust;
};

// m += (g − m)(1 − β1); v += (g² − v)(1 − β2); w −= alpha · m / (√v + ε), with alpha = lr · √(1 − β2^t) / (1
// − β1^t).
struct AdamStep {
  float alpha = 0;
  float one_minus_beta1 = 0;
  float one_minus_beta2 = 0;
  float epsilon = 0;
  Adjustments adjust;
};

}  // namespace lockstep::trainer
