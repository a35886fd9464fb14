#include <cmath>

#include "trainer/backend/cuda/column_sums.cuh"
#include "trainer/backend/cuda/layer_kernels.h"

namespace lockstep::trainer::cuda {
namespace {

constexpr int kWarps = 4;  // of a block, with a row each
constexpr int kThreads = kWarps * kWarp;

struct RowMoments {
  float mean;
  float inverse_deviation;
};

// Of a row, to all lanes of its warp.
__device__ RowMoments MomentsOf(const float* row, int64_t columns, float epsilon, int lane) {
  const auto add = [](float a, float b) { return a + b; };
  float sum = 0, squares = 0;
  for (int64_t i = lane; i < columns; i += kWarp) sum += row[i];
  const float mean = ReduceWarp(sum, add) / static_cast<float>(columns);
  for (int64_t i = lane; i < columns; i += kWarp) squares += (row[i] - mean) * (row[i] - mean);
  return {mean, 1.0f / sqrtf(ReduceWarp(squares, add) / static_cast<float>(columns) + epsilon)};
}

__global__ void __launch_bounds__(kThreads)
    NormalizeRows(int64_t rows, int64_t columns, float epsilon, const float* x, const float* gamma,
                  const float* beta, float* y) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (r >= rows) return;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const float* row = x + r * columns;
  const RowMoments moments = MomentsOf(row, columns, epsilon, lane);
  for (int64_t i = lane; i < columns; i += kWarp) {
    const float value = (row[i] - moments.mean) * moments.inverse_deviation;
    y[r * columns + i] = value * (gamma == nullptr ? 1.0f : gamma[i]) + (beta == nullptr ? 0.0f : beta[i]);
  }
}

// Writes dx, unless it is null, and leaves the rows' moments.
__global__ void __launch_bounds__(kThreads)
    NormalizeRowsGradient(int64_t rows, int64_t columns, float epsilon, const float* x, const float* gamma,
                          const float* dy, RowMoments* of_rows, float* dx) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (r >= rows) return;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const float *row = x + r * columns, *gradient = dy + r * columns;
  const RowMoments moments = MomentsOf(row, columns, epsilon, lane);
  if (lane == 0) of_rows[r] = moments;
  if (dx == nullptr) return;
  float sum = 0, product = 0;
  for (int64_t i = lane; i < columns; i += kWarp) {
    const float scaled = gradient[i] * (gamma == nullptr ? 1.0f : gamma[i]);
    sum += scaled;
    product += scaled * ((row[i] - moments.mean) * moments.inverse_deviation);
  }
  const auto add = [](float a, float b) { return a + b; };
  sum = ReduceWarp(sum, add);
  product = ReduceWarp(product, add);
  const float share = 1.0f / static_cast<float>(columns);
  for (int64_t i = lane; i < columns; i += kWarp) {
    const float value = (row[i] - moments.mean) * moments.inverse_deviation;
    const float scaled = gradient[i] * (gamma == nullptr ? 1.0f : gamma[i]);
    dx[r * columns + i] = moments.inverse_deviation * (scaled - share * (sum + value * product));
  }
}

struct VariableTerms {
  const float* x;
  const float* dy;
  const RowMoments* of_rows;
  __device__ void operator()(int64_t at, int64_t row, int64_t /*channel*/, float* first,
                             float* second) const {
    *first += dy[at] * ((x[at] - of_rows[row].mean) * of_rows[row].inverse_deviation);
    *second += dy[at];
  }
};

__global__ void __launch_bounds__(kThreads)
    WriteGradients(int64_t columns, const double* sums, float* dgamma, float* dbeta) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= columns) return;
  if (dgamma != nullptr) dgamma[i] = static_cast<float>(sums[i]);
  if (dbeta != nullptr) dbeta[i] = static_cast<float>(sums[columns + i]);
}

class LayerNormalization final : public RowKernel {
 public:
  LayerNormalization(const LayerNormalizationOptions& options, const KernelContext& context)
      : options_(options),
        context_(context),
        column_sums_(options.last_axis, context),
        sums_(*context.allocator, static_cast<size_t>(2 * options.last_axis) * sizeof(double)) {}

  void Bind(const Variables& variables) override { variables_ = variables; }

  void Forward(int64_t n, const float* x, float* y) override {
    const int64_t rows = n * options_.rows;
    LOCKSTEP_LAUNCH(NormalizeRows, RowBlocks(rows), kThreads, 0, context_.stream, rows, options_.last_axis,
                    options_.epsilon, x, variables_.values[0], variables_.values[1], y);
  }
  void Backward(int64_t n, const float* x, const float* dy, float* dx) override {
    const int64_t rows = n * options_.rows;
    const size_t bytes = static_cast<size_t>(rows) * sizeof(RowMoments);
    if (of_rows_.bytes() < bytes) of_rows_ = Buffer(*context_.allocator, bytes);
    LOCKSTEP_LAUNCH(NormalizeRowsGradient, RowBlocks(rows), kThreads, 0, context_.stream, rows,
                    options_.last_axis, options_.epsilon, x, variables_.values[0], dy,
                    of_rows_.as<RowMoments>(), dx);
    float *const dgamma = variables_.gradients[0], *const dbeta = variables_.gradients[1];
    if (dgamma == nullptr && dbeta == nullptr) return;
    column_sums_.Run(rows, VariableTerms{x, dy, of_rows_.as<RowMoments>()}, sums_.as<double>(), context_);
    LOCKSTEP_LAUNCH(WriteGradients, static_cast<unsigned>(CeilDiv(options_.last_axis, kThreads)), kThreads, 0,
                    context_.stream, options_.last_axis, sums_.as<double>(), dgamma, dbeta);
  }

 private:
  static unsigned RowBlocks(int64_t rows) { return static_cast<unsigned>(CeilDiv(rows, kWarps)); }

  const LayerNormalizationOptions options_;
  const KernelContext context_;
  ColumnSums column_sums_;
  Buffer sums_;
  Buffer of_rows_;  // of the largest batch so far
  Variables variables_;
};

}  // namespace

std::unique_ptr<RowKernel> MakeLayerNormalization(const LayerNormalizationOptions& options,
                                                  const KernelContext& context) {
  return std::make_unique<LayerNormalization>(options, context);
}

}  // namespace lockstep::trainer::cuda
