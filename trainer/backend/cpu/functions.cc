#include <vector>

#include "trainer/backend/cpu/layer_kernels.h"

namespace lockstep::trainer::cpu {
namespace {

class GlobalAveragePool final : public FunctionKernel {
 public:
  GlobalAveragePool(const GlobalAveragePoolOptions& options, const LayerLoops& loops)
      : input_(options.input), loops_(loops) {}

  void Forward(int64_t n, const float* x, float* y, void* /*saved*/) override {
    loops_.mean_of_pixels(n, input_.pixels(), input_.channels, x, y);
  }
  void Backward(int64_t n, const float* /*x*/, const float* /*y*/, const void* /*saved*/, float* dy,
                float* dx) override {
    loops_.spread_over_pixels(n, input_.pixels(), input_.channels, dy, dx);
  }

 private:
  ImageShape input_;
  const LayerLoops& loops_;
};

// What lies between x and y is computed again in the backward pass: that takes less time than to fetch it.
class LocalResponse final : public FunctionKernel {
 public:
  LocalResponse(const LocalResponseOptions& options, const LayerLoops& loops)
      : options_(options),
        loops_(loops),
        scratch_(HostAllocator(), static_cast<size_t>(LocalResponseScratch(options)) * sizeof(float)) {}

  void Forward(int64_t n, const float* x, float* y, void* /*saved*/) override {
    const ScopedFlushDenormals flush;
    loops_.local_response(options_, n * options_.input.pixels(), x, y, scratch_.as<float>());
  }
  void Backward(int64_t n, const float* x, const float* y, const void* /*saved*/, float* dy,
                float* dx) override {
    const ScopedFlushDenormals flush;
    loops_.local_response_gradient(options_, n * options_.input.pixels(), x, y, dy, dx, scratch_.as<float>());
  }

 private:
  LocalResponseOptions options_;
  const LayerLoops& loops_;
  Buffer scratch_;
};

class Activation final : public FunctionKernel {
 public:
  Activation(const ActivationOptions& options, const Context& context)
      : options_(options), kernels_(context.kernels()), loops_(context.loops()) {}

  void Forward(int64_t n, const float* x, float* y, void* /*saved*/) override {
    const ScopedFlushDenormals flush;
    const int64_t count = n * options_.features;
    switch (options_.function) {
      case Function::kRelu:
        return loops_.relu(count, x, y);
      case Function::kGelu:
        return loops_.gelu(count, x, y);
      case Function::kSoftmax: {
        const int64_t rows = count / options_.last_axis;
        sums_.resize(static_cast<size_t>(rows));
        maxima_.resize(static_cast<size_t>(rows));
        kernels_.exponentials(rows, options_.last_axis, x, y, sums_.data(), maxima_.data());
        return kernels_.scale_rows(rows, options_.last_axis, y, sums_.data(), 1, y);
      }
    }
  }
  void Backward(int64_t n, const float* x, const float* y, const void* /*saved*/, float* dy,
                float* dx) override {
    const ScopedFlushDenormals flush;
    const int64_t count = n * options_.features;
    switch (options_.function) {
      case Function::kRelu:
        return loops_.mask_gradient(count, y, dy, dx);
      case Function::kGelu:
        return loops_.gelu_gradient(count, x, dy, dx);
      case Function::kSoftmax:
        return loops_.softmax_gradient(count / options_.last_axis, options_.last_axis, y, dy, dx);
    }
  }

 private:
  ActivationOptions options_;
  const VectorKernels& kernels_;
  const LayerLoops& loops_;
  std::vector<float> sums_, maxima_;
};

}  // namespace

std::unique_ptr<FunctionKernel> MakeGlobalAveragePool(const GlobalAveragePoolOptions& options,
                                                      Context& context) {
  return std::make_unique<GlobalAveragePool>(options, context.loops());
}

std::unique_ptr<FunctionKernel> MakeLocalResponse(const LocalResponseOptions& options, Context& context) {
  return std::make_unique<LocalResponse>(options, context.loops());
}

std::unique_ptr<FunctionKernel> MakeActivation(const ActivationOptions& options, Context& context) {
  return std::make_unique<Activation>(options, context);
}

}  // namespace lockstep::trainer::cpu
