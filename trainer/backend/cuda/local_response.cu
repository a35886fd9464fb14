#include <cmath>

#include "trainer/backend/cuda/elementwise.cuh"
#include "trainer/backend/cuda/layer_kernels.h"

namespace lockstep::trainer::cuda {
namespace {

// s^−beta.
struct InverseRoot {
  __device__ float operator()(float s) const { return 1.0f / sqrtf(s); }
};
struct InverseThreeQuarters {
  __device__ float operator()(float s) const {
    const float root = sqrtf(s);
    return 1.0f / (root * sqrtf(root));
  }
};
struct InversePower {
  float beta;
  __device__ float operator()(float s) const { return powf(s, -beta); }
};

// The elements [begin, end) around element i, in its pixel and at most `radius` channels away.
struct Neighbours {
  __device__ Neighbours(int64_t i, int64_t channels, int64_t radius) {
    const int64_t channel = i % channels;
    begin = channel < radius ? i - channel : i - radius;
    end = channels - channel <= radius ? i + channels - channel : i + radius + 1;
  }
  int64_t begin, end;
};

// Leaves what is raised to the power in `scales`. Neighbours read the same values: they come from the cache.
template <typename Power>
__global__ void __launch_bounds__(kElementThreads)
    LocalResponseForward(LocalResponseOptions options, Power power, int64_t count, const float* x, float* y,
                         float* scales) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kElementThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x; i < count; i += stride) {
    const Neighbours near(i, options.input.channels, options.radius);
    float sum = 0;
    for (int64_t j = near.begin; j < near.end; ++j) sum += x[j] * x[j];
    const float scale = options.bias + options.alpha * sum;
    scales[i] = scale;
    y[i] = x[i] * power(scale);
  }
}

// With s as above: dx_c = dy_c · s_c^−beta − 2 · alpha · beta · x_c · Σ_j dy_j · y_j / s_j.
template <typename Power>
__global__ void __launch_bounds__(kElementThreads)
    LocalResponseBackward(LocalResponseOptions options, Power power, int64_t count, const float* x,
                          const float* y, const float* scales, const float* dy, float* dx) {
  const float slope = 2 * options.alpha * options.beta;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kElementThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x; i < count; i += stride) {
    const Neighbours near(i, options.input.channels, options.radius);
    float sum = 0;
    for (int64_t j = near.begin; j < near.end; ++j) sum += dy[j] * y[j] / scales[j];
    dx[i] = dy[i] * power(scales[i]) - slope * x[i] * sum;
  }
}

class LocalResponse final : public FunctionKernel {
 public:
  LocalResponse(const LocalResponseOptions& options, const KernelContext& context)
      : options_(options), context_(context) {}

  size_t saved_bytes(int64_t n) const override {
    return static_cast<size_t>(n * options_.input.features()) * sizeof(float);
  }
  void Forward(int64_t n, const float* x, float* y, void* saved) override {
    const int64_t count = n * options_.input.features();
    WithPower([&](auto power) {
      LOCKSTEP_LAUNCH(LocalResponseForward<decltype(power)>, ElementBlocks(count, context_), kElementThreads,
                      0, context_.stream, options_, power, count, x, y, static_cast<float*>(saved));
    });
  }
  void Backward(int64_t n, const float* x, const float* y, const void* saved, float* dy, float* dx) override {
    const int64_t count = n * options_.input.features();
    WithPower([&](auto power) {
      LOCKSTEP_LAUNCH(LocalResponseBackward<decltype(power)>, ElementBlocks(count, context_), kElementThreads,
                      0, context_.stream, options_, power, count, x, y, static_cast<const float*>(saved), dy,
                      dx);
    });
  }

 private:
  // (A power function takes many times as long as roots.)
  template <typename Launch>
  void WithPower(Launch&& launch) const {
    if (options_.beta == 0.5f) return launch(InverseRoot());
    if (options_.beta == 0.75f) return launch(InverseThreeQuarters());
    launch(InversePower{options_.beta});
  }

  const LocalResponseOptions options_;
  const KernelContext context_;
};

}  // namespace

std::unique_ptr<FunctionKernel> MakeLocalResponse(const LocalResponseOptions& options,
                                                  const KernelContext& context) {
  return std::make_unique<LocalResponse>(options, context);
}

}  // namespace lockstep::trainer::cuda
