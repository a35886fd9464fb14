#include <cmath>
#include <vector>

#include "trainer/backend/cuda/column_sums.cuh"
#include "trainer/backend/cuda/elementwise.cuh"
#include "trainer/backend/cuda/layer_kernels.h"
#include "trainer/backend/cuda/recording.h"

namespace lockstep::trainer::cuda {
namespace {

constexpr int kChannelThreads = 128;

// Sums are taken around the moving mean, which is near: what is left then does not cancel out.
struct MomentTerms {
  const float* x;
  const float* shift;
  __device__ void operator()(int64_t at, int64_t /*row*/, int64_t channel, float* first,
                             float* second) const {
    const float centered = x[at] - shift[channel];
    *first += centered;
    *second += centered * centered;
  }
};

// The gradient before the activation, where there is one.
__device__ float MaskedGradient(const float* y, const float* dy, int64_t at) {
  return y != nullptr && !(y[at] > 0) ? 0.0f : dy[at];
}

struct GradientTerms {
  const float* x;
  const float* y;  // null: no activation
  const float* dy;
  const double* mean;
  __device__ void operator()(int64_t at, int64_t /*row*/, int64_t channel, float* first,
                             float* second) const {
    const float gradient = MaskedGradient(y, dy, at);
    *first += gradient;
    *second += gradient * (x[at] - static_cast<float>(mean[channel]));
  }
};

// What a forward pass leaves, by channel: mean and 1 / √(variance + epsilon) of the batch; and behind them of
// how many values.
struct Statistics {
  Statistics(const void* saved, int64_t channels)
      : mean(static_cast<double*>(const_cast<void*>(saved))),
        inverse(mean + channels),
        count(inverse + channels) {}
  static size_t Bytes(int64_t channels) { return static_cast<size_t>(2 * channels + 1) * sizeof(double); }
  double* mean;
  double* inverse;
  double* count;
};

struct Affine {
  const float* gamma;
  const float* beta;
  __device__ double Gamma(int64_t c) const { return gamma == nullptr ? 1.0 : gamma[c]; }
  __device__ double Beta(int64_t c) const { return beta == nullptr ? 0.0 : beta[c]; }
};

struct Moving {
  float* mean;
  float* variance;
  double momentum;
  double epsilon;
};

// y = x · factor + offset.
struct Scaling {
  float* factor;
  float* offset;
};

// From the sums around the moving mean; of no value at all nothing moves.
__global__ void __launch_bounds__(kChannelThreads)
    FinishMoments(int64_t channels, const double* sums, double count, Affine affine, Moving moving,
                  Statistics statistics, Scaling scaling) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kChannelThreads + threadIdx.x;
  if (c == 0) *statistics.count = count;
  if (c >= channels) return;
  double mean = moving.mean[c], variance = moving.variance[c];
  if (count > 0) {
    const double distance = sums[c] / count;
    const double spread = sums[channels + c] / count - distance * distance;
    const double keep = moving.momentum;
    moving.mean[c] = static_cast<float>(mean * keep + (mean + distance) * (1 - keep));
    mean += distance;
    variance = spread > 0 ? spread : spread < 0 ? 0.0 : spread;  // (A NaN stays one.)
    moving.variance[c] = static_cast<float>(moving.variance[c] * keep + variance * (1 - keep));
  }
  const double inverse = 1 / sqrt(variance + moving.epsilon);
  statistics.mean[c] = mean;
  statistics.inverse[c] = inverse;
  scaling.factor[c] = static_cast<float>(affine.Gamma(c) * inverse);
  scaling.offset[c] = static_cast<float>(affine.Beta(c) - mean * affine.Gamma(c) * inverse);
}

__global__ void __launch_bounds__(kChannelThreads)
    ScalingOfMoving(int64_t channels, Affine affine, Moving moving, Scaling scaling) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kChannelThreads + threadIdx.x;
  if (c >= channels) return;
  const double scale = affine.Gamma(c) / sqrt(moving.variance[c] + moving.epsilon);
  scaling.factor[c] = static_cast<float>(scale);
  scaling.offset[c] = static_cast<float>(affine.Beta(c) - moving.mean[c] * scale);
}

template <int kPack, bool kRelu>
__global__ void __launch_bounds__(kElementThreads)
    ScaleColumns(int64_t count, int64_t channels, const float* x, Scaling scaling, float* y) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kElementThreads * kPack;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x) * kPack; i < count;
       i += stride) {
    const int64_t c = i % channels;
    Pack<float, kPack> values = LoadPack<kPack>(x + i);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      const float value = values.values[j] * scaling.factor[c + j] + scaling.offset[c + j];
      values.values[j] = kRelu && !(value > 0) ? 0.0f : value;
    }
    StorePack(y + i, values);
  }
}

// dx = of_gradient · dy + of_value · (x − shift) + constant, by channel.
struct GradientScaling {
  float* shift;
  float* of_gradient;
  float* of_value;
  float* constant;
};

// Σ dy · (x − mean) becomes Σ dy · x̂, and both are the gradients of the variables.
__global__ void __launch_bounds__(kChannelThreads)
    FinishGradients(int64_t channels, double* sums, Statistics statistics, float* dgamma, float* dbeta) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kChannelThreads + threadIdx.x;
  if (c >= channels) return;
  sums[channels + c] *= statistics.inverse[c];
  if (dbeta != nullptr) dbeta[c] = static_cast<float>(sums[c]);
  if (dgamma != nullptr) dgamma[c] = static_cast<float>(sums[channels + c]);
}

__global__ void __launch_bounds__(kChannelThreads)
    ScalingOfGradients(int64_t channels, const double* sums, Affine affine, Statistics statistics,
                       GradientScaling scaling) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kChannelThreads + threadIdx.x;
  if (c >= channels) return;
  const double inverse = statistics.inverse[c], count = *statistics.count;
  const double scale = affine.Gamma(c) * inverse;
  scaling.shift[c] = static_cast<float>(statistics.mean[c]);
  scaling.of_gradient[c] = static_cast<float>(scale);
  scaling.of_value[c] = static_cast<float>(-scale * sums[channels + c] * inverse / count);
  scaling.constant[c] = static_cast<float>(-scale * sums[c] / count);
}

__global__ void __launch_bounds__(kElementThreads)
    NormalizationGradient(int64_t count, int64_t channels, const float* x, const float* y, const float* dy,
                          GradientScaling scaling, float* dx) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kElementThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x; i < count; i += stride) {
    const int64_t c = i % channels;
    dx[i] = scaling.of_gradient[c] * MaskedGradient(y, dy, i) +
            scaling.of_value[c] * (x[i] - scaling.shift[c]) + scaling.constant[c];
  }
}

class BatchNormalization final : public BatchNormalizationKernel {
 public:
  BatchNormalization(const BatchNormalizationOptions& options, const KernelContext& context)
      : options_(options),
        context_(context),
        column_sums_(options.channels, context),
        sums_(*context.allocator, 2 * channels() * sizeof(double)),
        moving_(*context.allocator, 2 * channels() * sizeof(float)),
        scaling_(*context.allocator, 4 * channels() * sizeof(float)) {
    ImportMean(std::vector<float>(channels()).data());
    ImportVariance(std::vector<float>(channels(), 1.0f).data());
  }

  void Bind(const Variables& variables) override { variables_ = variables; }

  void ExportState(float* mean, float* variance) const override {
    Transfer(mean, moving_mean(), channels() * sizeof(float));
    Transfer(variance, moving_variance(), channels() * sizeof(float));
  }
  void ImportMean(const float* mean) override { Transfer(moving_mean(), mean, channels() * sizeof(float)); }
  void ImportVariance(const float* variance) override {
    Transfer(moving_variance(), variance, channels() * sizeof(float));
  }

  size_t saved_bytes() const override { return Statistics::Bytes(options_.channels); }

  void Forward(int64_t n, const float* x, float* y, void* saved, bool training,
               const SumOverReplicas& sum) override {
    const Affine affine{variables_.gamma, variables_.beta};
    const Moving moving{moving_mean(), moving_variance(), options_.momentum, options_.epsilon};
    const Scaling scaling{scaling_.as<float>(), scaling_.as<float>() + channels()};
    if (training) {
      const double count = BatchSums(n, MomentTerms{x, moving_mean()}, sum);
      LOCKSTEP_LAUNCH(FinishMoments, ChannelBlocks(), kChannelThreads, 0, context_.stream, options_.channels,
                      sums_.as<double>(), count, affine, moving, Statistics(saved, options_.channels),
                      scaling);
    } else {
      LOCKSTEP_LAUNCH(ScalingOfMoving, ChannelBlocks(), kChannelThreads, 0, context_.stream,
                      options_.channels, affine, moving, scaling);
    }
    if (n > 0) options_.relu ? Scale<true>(n, x, scaling, y) : Scale<false>(n, x, scaling, y);
  }

  // With x̂ = (x − mean) / σ: dβ = Σ dy, dγ = Σ dy · x̂, dx = γ / (σ m) · (m dy − dβ − x̂ dγ), of the batch's m
  // values in a channel (Ioffe, Szegedy, section 3).
  void Backward(int64_t n, const float* x, const float* y, const void* saved, const float* dy, float* dx,
                const SumOverReplicas& sum) override {
    const Statistics statistics(saved, options_.channels);
    const float* const mask = options_.relu ? y : nullptr;
    LocalSums(n, GradientTerms{x, mask, dy, statistics.mean});
    // (The strategy sums the gradients of the variables over the replicas: these are this one's.)
    LOCKSTEP_LAUNCH(FinishGradients, ChannelBlocks(), kChannelThreads, 0, context_.stream, options_.channels,
                    sums_.as<double>(), statistics, variables_.dgamma, variables_.dbeta);
    if (sum) Exchange(0, sum);
    if (n == 0 || dx == nullptr) return;
    float* const values = scaling_.as<float>();
    const GradientScaling scaling{values, values + channels(), values + 2 * channels(),
                                  values + 3 * channels()};
    LOCKSTEP_LAUNCH(ScalingOfGradients, ChannelBlocks(), kChannelThreads, 0, context_.stream,
                    options_.channels, sums_.as<double>(), Affine{variables_.gamma, variables_.beta},
                    statistics, scaling);
    const int64_t count = n * options_.pixels * options_.channels;
    LOCKSTEP_LAUNCH(NormalizationGradient, ElementBlocks(count, context_), kElementThreads, 0,
                    context_.stream, count, options_.channels, x, mask, dy, scaling, dx);
  }

 private:
  size_t channels() const { return static_cast<size_t>(options_.channels); }
  float* moving_mean() const { return moving_.as<float>(); }
  float* moving_variance() const { return moving_.as<float>() + channels(); }
  unsigned ChannelBlocks() const {
    return static_cast<unsigned>(CeilDiv(options_.channels, kChannelThreads));
  }

  // Between host and device; blocks.
  void Transfer(void* to, const void* from, size_t bytes) const {
    LOCKSTEP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, context_.stream));
    LOCKSTEP_CUDA(cudaStreamSynchronize(context_.stream));
  }

  template <typename Terms>
  void LocalSums(int64_t n, const Terms& terms) {
    if (n == 0) {
      LOCKSTEP_CUDA(cudaMemsetAsync(sums_.data(), 0, sums_.bytes(), context_.stream));
    } else {
      column_sums_.Run(n * options_.pixels, terms, sums_.as<double>(), context_);
    }
  }

  // The sums over all replicas' batch; returns how many values each is of.
  template <typename Terms>
  double BatchSums(int64_t n, const Terms& terms, const SumOverReplicas& sum) {
    LocalSums(n, terms);
    const auto count = static_cast<double>(n * options_.pixels);
    return sum ? Exchange(count, sum) : count;
  }

  // The host sums what the replicas have, and `count` with it: both are of all replicas afterwards.
  double Exchange(double count, const SumOverReplicas& sum) {
    if (IsRecording(context_.stream)) throw NotRecordable("replicas sum on the host");
    std::vector<double> host(2 * channels() + 1);
    Transfer(host.data(), sums_.data(), sums_.bytes());
    host.back() = count;
    sum(host);
    Transfer(sums_.data(), host.data(), sums_.bytes());
    return host.back();
  }

  template <bool kRelu>
  void Scale(int64_t n, const float* x, const Scaling& scaling, float* y) {
    constexpr int kWidest = 4;
    const int64_t count = n * options_.pixels * options_.channels;
    if (options_.channels % kWidest == 0 && Aligned(sizeof(Pack<float, kWidest>), x, y)) {
      LOCKSTEP_LAUNCH((ScaleColumns<kWidest, kRelu>), ElementBlocks(count / kWidest, context_),
                      kElementThreads, 0, context_.stream, count, options_.channels, x, scaling, y);
    } else {
      LOCKSTEP_LAUNCH((ScaleColumns<1, kRelu>), ElementBlocks(count, context_), kElementThreads, 0,
                      context_.stream, count, options_.channels, x, scaling, y);
    }
  }

  const BatchNormalizationOptions options_;
  const KernelContext context_;
  ColumnSums column_sums_;
  Buffer sums_;     // [2, channels], in double
  Buffer moving_;   // mean, then variance
  Buffer scaling_;  // of the pass at hand
  Variables variables_;
};

}  // namespace

std::unique_ptr<BatchNormalizationKernel> MakeBatchNormalization(const BatchNormalizationOptions& options,
                                                                 const KernelContext& context) {
  return std::make_unique<BatchNormalization>(options, context);
}

}  // namespace lockstep::trainer::cuda
