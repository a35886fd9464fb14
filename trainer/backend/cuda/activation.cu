#include <cmath>

#include "trainer/backend/cuda/elementwise.cuh"
#include "trainer/backend/cuda/layer_kernels.h"
#include "trainer/backend/cuda/reduce.cuh"

namespace lockstep::trainer::cuda {
namespace {

struct Relu {
  __device__ float operator()(float x, float /*none*/) const { return x > 0 ? x : 0.0f; }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct SumRelu {
  __device__ float operator()(float a, float b) const { return Relu()(a + b, 0); }
};
struct Masked {
  __device__ float operator()(float y, float dy) const { return y > 0 ? dy : 0.0f; }
};

// The standard normal distribution's Φ and its density.
__device__ float Phi(float x) { return 0.5f * erfcf(-0.70710678118654752f * x); }
__device__ float Density(float x) { return 0.3989422804014327f * expf(-0.5f * x * x); }

struct Gelu {
  __device__ float operator()(float x, float /*none*/) const { return x * Phi(x); }
};
struct GeluGradient {
  __device__ float operator()(float x, float dy) const { return dy * (Phi(x) + x * Density(x)); }
};

constexpr int kWarps = 4;  // of a block, with a row each
constexpr int kThreads = kWarps * kWarp;

__global__ void __launch_bounds__(kThreads) Softmax(int64_t rows, int64_t columns, const float* x, float* y) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (r >= rows) return;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const float* row = x + r * columns;
  float* result = y + r * columns;
  float largest = -INFINITY;
  for (int64_t i = lane; i < columns; i += kWarp) largest = fmaxf(largest, row[i]);
  largest = ReduceWarp(largest, [](float a, float b) { return fmaxf(a, b); });
  float sum = 0;
  for (int64_t i = lane; i < columns; i += kWarp) sum += expf(row[i] - largest);
  sum = ReduceWarp(sum, [](float a, float b) { return a + b; });
  const float factor = 1 / sum;
  for (int64_t i = lane; i < columns; i += kWarp) result[i] = expf(row[i] - largest) * factor;
}

__global__ void __launch_bounds__(kThreads)
    SoftmaxGradient(int64_t rows, int64_t columns, const float* y, const float* dy, float* dx) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (r >= rows) return;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const float *value = y + r * columns, *gradient = dy + r * columns;
  float product = 0;
  for (int64_t i = lane; i < columns; i += kWarp) product += value[i] * gradient[i];
  product = ReduceWarp(product, [](float a, float b) { return a + b; });
  for (int64_t i = lane; i < columns; i += kWarp) dx[r * columns + i] = value[i] * (gradient[i] - product);
}

class Activation final : public FunctionKernel {
 public:
  Activation(const ActivationOptions& options, const KernelContext& context)
      : options_(options), context_(context) {}

  void Forward(int64_t n, const float* x, float* y, void* /*saved*/) override {
    const int64_t count = n * options_.features;
    switch (options_.function) {
      case Function::kRelu:
        return ForEachElement(count, Relu(), x, y, context_);
      case Function::kGelu:
        return ForEachElement(count, Gelu(), x, y, context_);
      case Function::kSoftmax:
        LOCKSTEP_LAUNCH(Softmax, Blocks(count), kThreads, 0, context_.stream, count / options_.last_axis,
                        options_.last_axis, x, y);
    }
  }
  void Backward(int64_t n, const float* x, const float* y, const void* /*saved*/, float* dy,
                float* dx) override {
    const int64_t count = n * options_.features;
    switch (options_.function) {
      case Function::kRelu:
        return ForEachElement(count, Masked(), y, dy, dx, context_);
      case Function::kGelu:
        return ForEachElement(count, GeluGradient(), x, dy, dx, context_);
      case Function::kSoftmax:
        LOCKSTEP_LAUNCH(SoftmaxGradient, Blocks(count), kThreads, 0, context_.stream,
                        count / options_.last_axis, options_.last_axis, y, dy, dx);
    }
  }

 private:
  unsigned Blocks(int64_t count) const {
    return static_cast<unsigned>(CeilDiv(count / options_.last_axis, kWarps));
  }

  const ActivationOptions options_;
  const KernelContext context_;
};

}  // namespace

std::unique_ptr<FunctionKernel> MakeActivation(const ActivationOptions& options,
                                               const KernelContext& context) {
  return std::make_unique<Activation>(options, context);
}

void Add(int64_t count, const float* a, const float* b, bool relu, float* y, const KernelContext& context) {
  relu ? ForEachElement(count, SumRelu(), a, b, y, context) : ForEachElement(count, Sum(), a, b, y, context);
}

void MaskGradient(int64_t count, const float* y, float* dy, const KernelContext& context) {
  ForEachElement(count, Masked(), y, dy, dy, context);
}

}  // namespace lockstep::trainer::cuda
