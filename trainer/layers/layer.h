#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/layers/initializer.h"
#include "trainer/tensor/bfloat16.h"
#include "trainer/tensor/dtype.h"
#include "trainer/tensor/shape.h"

// layers/ has the kinds of layer a model is made of. A layer knows its variables and how to run forward and
// backward through kernels of the backend; it owns no parameters and no activations: the model lays those
// out. A kind more is a class more and a case in MakeLayer.
namespace lockstep::trainer {

// A variable as a layer wants it.
struct VariableSpec {
  std::string name;         // "kernel", "bias"
  Shape shape;              // canonical
  int64_t stored_size = 0;  // floats in the flat buffers
  Initializer initializer = Initializer::kZeros;
  double l2 = 0;
};

// Where a variable of a layer and its gradient are.
struct BoundVariable {
  const float* value = nullptr;
  float* gradient = nullptr;
};

class Layer {
 public:
  virtual ~Layer() = default;

  virtual const std::string& name() const = 0;
  virtual int64_t outputs() const = 0;  // features a sample
  virtual DataType output_type() const = 0;
  virtual DataType output_gradient_type() const = 0;
  virtual const std::vector<VariableSpec>& variables() const = 0;
  // Floating-point operations a sample of the matrix products (or convolutions) of a forward and a backward
  // pass.
  virtual int64_t training_flops() const = 0;

  // Between the stored order of variable `index` and canonical row-major order; exact, host memory.
  virtual void FromCanonical(int index, const float* canonical, float* stored) const = 0;
  virtual void ToCanonical(int index, const float* stored, float* canonical) const = 0;

  // In the order of variables(). Before the first pass, and again whenever they moved.
  virtual void Bind(const std::vector<BoundVariable>& variables) = 0;
  // Elements [begin, end) of variable `index`, as stored, changed.
  virtual void ParametersChanged(int index, int64_t begin, int64_t end) = 0;
  // A copy of variable `index` in BFloat16 that an optimizer of the model's backend can write as well, or
  // null.
  virtual BFloat16* rounded(int /*index*/) const { return nullptr; }

  // See DenseKernel: x, dx have the input's type, y output_type(), dy output_gradient_type().
  virtual void Forward(int64_t n, const void* x, void* y) = 0;
  virtual void Backward(int64_t n, const void* x, const void* y, void* dy, void* dx) = 0;
};

}  // namespace lockstep::trainer
