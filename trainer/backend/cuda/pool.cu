#include <cmath>
#include <limits>

#include "trainer/backend/cuda/image_rows.cuh"
#include "trainer/backend/cuda/launch.h"
#include "trainer/backend/cuda/layer_kernels.h"
#include "trainer/backend/cuda/numbers.cuh"

namespace lockstep::trainer::cuda {
namespace {

constexpr int kThreads = kRowThreads;

// The positions [begin, end) of a window along one axis that lie in the image.
struct Span {
  int begin, end;
};
__device__ Span InImage(int output, int64_t stride, int64_t before, int64_t window, int64_t extent) {
  const int first = static_cast<int>(output * stride - before);
  const int rest = static_cast<int>(extent) - first;
  return {first < 0 ? -first : 0, rest < static_cast<int>(window) ? rest : static_cast<int>(window)};
}
// The outputs [begin, end) along one axis whose windows have `input`.
__device__ Span OutputsOver(int input, int64_t stride, int64_t before, int64_t window, int64_t outputs) {
  const int at = input + static_cast<int>(before), step = static_cast<int>(stride);
  const int past = at - static_cast<int>(window) + 1;
  const int begin = past <= 0 ? 0 : (past + step - 1) / step, end = at / step + 1;
  return {begin, end < static_cast<int>(outputs) ? end : static_cast<int>(outputs)};
}

// Of equal values the first one counts. A place is the position in the window, row-major.
template <typename Place>
__global__ void __launch_bounds__(kThreads)
    MaxForward(PoolOptions options, const float* x, float* y, Place* places) {
  const ImageShape &in = options.input, &out = options.output;
  const Window& window = options.window;
  const Cell cell(out);
  if (!cell.inside) return;
  const Span rows = InImage(cell.y, window.stride_height, window.pad_top, window.height, in.height);
  const Span columns = InImage(cell.x, window.stride_width, window.pad_left, window.width, in.width);
  const int64_t top = cell.y * window.stride_height - window.pad_top;
  const int64_t left = cell.x * window.stride_width - window.pad_left;
  float best = -INFINITY;
  int place = -1;
  for (int i = rows.begin; i < rows.end; ++i) {
    for (int j = columns.begin; j < columns.end; ++j) {
      const float value =
          x[((cell.n * in.height + top + i) * in.width + left + j) * in.channels + cell.channel];
      if (place < 0 || value > best) {
        best = value;
        place = i * static_cast<int>(window.width) + j;
      }
    }
  }
  y[cell.index] = best;
  places[cell.index] = static_cast<Place>(place);
}

__global__ void __launch_bounds__(kThreads) AverageForward(PoolOptions options, const float* x, float* y) {
  const ImageShape &in = options.input, &out = options.output;
  const Window& window = options.window;
  const Cell cell(out);
  if (!cell.inside) return;
  const Span rows = InImage(cell.y, window.stride_height, window.pad_top, window.height, in.height);
  const Span columns = InImage(cell.x, window.stride_width, window.pad_left, window.width, in.width);
  const int64_t top = cell.y * window.stride_height - window.pad_top;
  const int64_t left = cell.x * window.stride_width - window.pad_left;
  float sum = 0;
  for (int i = rows.begin; i < rows.end; ++i) {
    for (int j = columns.begin; j < columns.end; ++j) {
      sum += x[((cell.n * in.height + top + i) * in.width + left + j) * in.channels + cell.channel];
    }
  }
  y[cell.index] = sum / static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
}

// Each input gathers from the windows that have it, in their order. Without places: of the mean.
template <bool kMaximum, typename Place>
__global__ void __launch_bounds__(kThreads)
    PoolBackward(PoolOptions options, const Place* places, const float* dy, float* dx) {
  const ImageShape &in = options.input, &out = options.output;
  const Window& window = options.window;
  const Cell cell(in);
  if (!cell.inside) return;
  const Span rows = OutputsOver(cell.y, window.stride_height, window.pad_top, window.height, out.height);
  const Span columns = OutputsOver(cell.x, window.stride_width, window.pad_left, window.width, out.width);
  float sum = 0;
  for (int i = rows.begin; i < rows.end; ++i) {
    for (int j = columns.begin; j < columns.end; ++j) {
      const int64_t at = ((cell.n * out.height + i) * out.width + j) * out.channels + cell.channel;
      if constexpr (kMaximum) {
        const int64_t row = cell.y - (i * window.stride_height - window.pad_top);
        const int64_t column = cell.x - (j * window.stride_width - window.pad_left);
        if (static_cast<int64_t>(places[at]) == row * window.width + column) sum += dy[at];
      } else {
        const Span down = InImage(i, window.stride_height, window.pad_top, window.height, in.height);
        const Span across = InImage(j, window.stride_width, window.pad_left, window.width, in.width);
        sum += dy[at] / static_cast<float>((down.end - down.begin) * (across.end - across.begin));
      }
    }
  }
  dx[cell.index] = sum;
}

template <typename Place>
class MaxPool final : public FunctionKernel {
 public:
  MaxPool(const PoolOptions& options, const KernelContext& context) : options_(options), context_(context) {}

  size_t saved_bytes(int64_t n) const override {
    return static_cast<size_t>(n * options_.output.features()) * sizeof(Place);
  }
  void Forward(int64_t n, const float* x, float* y, void* saved) override {
    LOCKSTEP_LAUNCH(MaxForward<Place>, RowGrid(n, options_.output), kThreads, 0, context_.stream, options_, x,
                    y, static_cast<Place*>(saved));
  }
  void Backward(int64_t n, const float* /*x*/, const float* /*y*/, const void* saved, float* dy,
                float* dx) override {
    LOCKSTEP_LAUNCH((PoolBackward<true, Place>), RowGrid(n, options_.input), kThreads, 0, context_.stream,
                    options_, static_cast<const Place*>(saved), dy, dx);
  }

 private:
  const PoolOptions options_;
  const KernelContext context_;
};

class AveragePool final : public FunctionKernel {
 public:
  AveragePool(const PoolOptions& options, const KernelContext& context)
      : options_(options), context_(context) {}

  void Forward(int64_t n, const float* x, float* y, void* /*saved*/) override {
    LOCKSTEP_LAUNCH(AverageForward, RowGrid(n, options_.output), kThreads, 0, context_.stream, options_, x,
                    y);
  }
  void Backward(int64_t n, const float* /*x*/, const float* /*y*/, const void* /*saved*/, float* dy,
                float* dx) override {
    const uint8_t* const no_places = nullptr;
    LOCKSTEP_LAUNCH((PoolBackward<false, uint8_t>), RowGrid(n, options_.input), kThreads, 0, context_.stream,
                    options_, no_places, dy, dx);
  }

 private:
  const PoolOptions options_;
  const KernelContext context_;
};

// A block has some channels of one image.
__global__ void __launch_bounds__(kThreads)
    MeanOfPixels(int64_t pixels, int64_t channels, const float* x, float* y) {
  const int64_t channel = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (channel >= channels) return;
  const float* value = x + blockIdx.x * pixels * channels + channel;
  float sum = 0;
#pragma unroll 4
  for (int64_t p = 0; p < pixels; ++p) sum += value[p * channels];
  y[blockIdx.x * channels + channel] = sum * (1.0f / static_cast<float>(pixels));
}

__global__ void __launch_bounds__(kThreads)
    SpreadOverPixels(int64_t pixels, int64_t channels, const float* dy, float* dx) {
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (column >= pixels * channels) return;
  dx[blockIdx.x * pixels * channels + column] =
      dy[blockIdx.x * channels + column % channels] * (1.0f / static_cast<float>(pixels));
}

class GlobalAveragePool final : public FunctionKernel {
 public:
  GlobalAveragePool(const GlobalAveragePoolOptions& options, const KernelContext& context)
      : input_(options.input), context_(context) {}

  void Forward(int64_t n, const float* x, float* y, void* /*saved*/) override {
    LOCKSTEP_LAUNCH(MeanOfPixels, Grid(n, input_.channels), kThreads, 0, context_.stream, input_.pixels(),
                    input_.channels, x, y);
  }
  void Backward(int64_t n, const float* /*x*/, const float* /*y*/, const void* /*saved*/, float* dy,
                float* dx) override {
    LOCKSTEP_LAUNCH(SpreadOverPixels, Grid(n, input_.features()), kThreads, 0, context_.stream,
                    input_.pixels(), input_.channels, dy, dx);
  }

 private:
  static dim3 Grid(int64_t n, int64_t columns) {
    return dim3(static_cast<unsigned>(n), static_cast<unsigned>(CeilDiv(columns, kThreads)));
  }

  const ImageShape input_;
  const KernelContext context_;
};

}  // namespace

std::unique_ptr<FunctionKernel> MakePool(const PoolOptions& options, const KernelContext& context) {
  if (!options.maximum) return std::make_unique<AveragePool>(options, context);
  const int64_t places = options.window.height * options.window.width;
  if (places - 1 <= std::numeric_limits<uint8_t>::max()) {
    return std::make_unique<MaxPool<uint8_t>>(options, context);
  }
  return std::make_unique<MaxPool<int32_t>>(options, context);
}

std::unique_ptr<FunctionKernel> MakeGlobalAveragePool(const GlobalAveragePoolOptions& options,
                                                      const KernelContext& context) {
  return std::make_unique<GlobalAveragePool>(options, context);
}

}  // namespace lockstep::trainer::cuda
