#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/layers/initializer.h"
#include "trainer/layers/pass.h"
#include "trainer/tensor/bfloat16.h"
#include "trainer/tensor/dtype.h"
#include "trainer/tensor/shape.h"

// layers/ has the kinds of layer a model is made of. A layer knows its variables and how to run forward and
// backward through kernels of the backend; it owns no parameters and no activations: the model lays those
// out. A sample's activations are [features] or, of images, [height, width, channels], the last one
// contiguous. A kind more is a class more and a case in FactsOf and MakeLayer.
namespace lockstep::trainer {

// A variable as a layer wants it.
struct VariableSpec {
  std::string name;         // "kernel", "bias"; within a block "conv2d/kernel"
  Shape shape;              // canonical
  int64_t stored_size = 0;  // floats in the flat buffers
  Initializer initializer = Initializer::kZeros;
  double l2 = 0;
  bool decays = false;  // weight decay applies: to kernels, not to biases and normalisations
};

// What a layer remembers from step to step without its being trained: moving statistics. The layer owns it,
// wherever it computes.
struct StateSpec {
  std::string name;  // "moving_mean"
  Shape shape;
};

// Where a variable of a layer and its gradient are.
struct BoundVariable {
  const float* value = nullptr;
  float* gradient = nullptr;
};

// The memory of one pass through a layer, in its backend's memory, each aligned to kBufferAlignment.
struct LayerMemory {
  const void* x = nullptr;
  void* y = nullptr;
  void* saved = nullptr;    // saved_bytes(): the layer's from Forward to the Backward of the same pass
  void* scratch = nullptr;  // scratch_bytes(): the layer's during a call
};

class Layer {
 public:
  virtual ~Layer() = default;

  virtual const std::string& name() const = 0;
  virtual const Shape& output_shape() const = 0;  // of a sample
  int64_t outputs() const { return output_shape().num_elements(); }
  virtual DataType output_type() const = 0;
  virtual DataType output_gradient_type() const = 0;
  virtual const std::vector<VariableSpec>& variables() const = 0;
  // Floating-point operations a sample of the matrix products (or convolutions) of a forward and a backward
  // pass.
  virtual int64_t training_flops() const = 0;

  // Whether its outputs are its inputs, only called something else: it is then given no memory and no pass.
  virtual bool is_identity() const { return false; }
  // Whether its passes sum over the replicas. Those of a training step are then run with n = 0 as well.
  virtual bool sums_over_replicas() const { return false; }
  // For passes of max_batch samples.
  virtual size_t saved_bytes() const { return 0; }
  virtual size_t scratch_bytes() const { return 0; }

  // Between the stored order of variable `index` and canonical row-major order; exact, host memory.
  virtual void FromCanonical(int index, const float* canonical, float* stored) const = 0;
  virtual void ToCanonical(int index, const float* stored, float* canonical) const = 0;

  // The state, in host memory, row-major. It begins as the layer says, and passes in training change it.
  virtual std::vector<StateSpec> state() const { return {}; }
  virtual void ExportState(int /*index*/, float* /*to*/) const {}
  virtual void ImportState(int /*index*/, const float* /*from*/) {}
  // Whether replicas come to different states, because each sees its own samples only.
  virtual bool state_differs() const { return false; }

  // In the order of variables(). Before the first pass, and again whenever they moved.
  virtual void Bind(const std::vector<BoundVariable>& variables) = 0;
  // Elements [begin, end) of variable `index`, as stored, changed.
  virtual void ParametersChanged(int index, int64_t begin, int64_t end) = 0;
  // A copy of variable `index` in BFloat16 that an optimizer of the model's backend can write as well, or
  // null.
  virtual BFloat16* rounded(int /*index*/) const { return nullptr; }

  // Whether Backward leaves dy as it was.
  virtual bool keeps_gradient() const { return false; }

  // x, dx have the input's type, y output_type(), dy output_gradient_type(). Backward follows a Forward with
  // training and gets the same memory; it writes (does not add) the gradients of the variables and, unless it
  // is null, dx; it may overwrite dy. It reads the parameters first, and never after it wrote their
  // gradients.
  virtual void Forward(const Pass& pass, const LayerMemory& memory) = 0;
  virtual void Backward(const Pass& pass, const LayerMemory& memory, void* dy, void* dx) = 0;
};

}  // namespace lockstep::trainer
