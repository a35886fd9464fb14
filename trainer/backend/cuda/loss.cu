#include <cmath>

#include "trainer/backend/cuda/launch.h"
#include "trainer/backend/cuda/loss.h"
#include "trainer/backend/cuda/numbers.cuh"
#include "trainer/backend/cuda/reduce.cuh"

namespace lockstep::trainer::cuda {
namespace {

constexpr int kWarps = 4;  // of a block
constexpr int kThreads = kWarps * kWarp;
constexpr int64_t kMostBlocks = 512;

// LossSums without initial values, as shared memory wants it.
struct Sums {
  double loss;
  int64_t correct, wrong, wrong_label;
};
static_assert(sizeof(Sums) == sizeof(LossSums));

__device__ Sums Add(const Sums& a, const Sums& b) {
  const bool from_b = b.wrong != 0 && (a.wrong == 0 || b.wrong < a.wrong);  // the first sample
  return {a.loss + b.loss, a.correct + b.correct, from_b ? b.wrong : a.wrong,
          from_b ? b.wrong_label : a.wrong_label};
}

__device__ Sums Shuffle(const Sums& sums, int distance) {
  return {__shfl_xor_sync(0xffffffffu, sums.loss, distance),
          __shfl_xor_sync(0xffffffffu, sums.correct, distance),
          __shfl_xor_sync(0xffffffffu, sums.wrong, distance),
          __shfl_xor_sync(0xffffffffu, sums.wrong_label, distance)};
}

__device__ Sums AddWarp(Sums sums) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) sums = Add(sums, Shuffle(sums, distance));
  return sums;
}

// `mine` is this warp's, the same in all its lanes. Adds up the grid, in fixed order, into *total: to what is
// there of the samples `before`, if there are any.
__device__ void AddGrid(const Sums& mine, Sums* of_blocks, unsigned* arrived, LossSums* total,
                        int64_t before) {
  __shared__ Sums of_warps[kWarps];
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    Sums block = of_warps[0];
    for (int warp = 1; warp < kWarps; ++warp) block = Add(block, of_warps[warp]);
    of_blocks[blockIdx.x] = block;
  }
  if (!LastToArrive(arrived, gridDim.x) || threadIdx.x >= kWarp) return;
  Sums sum{};
  for (unsigned block = threadIdx.x; block < gridDim.x; block += kWarp) sum = Add(sum, of_blocks[block]);
  sum = AddWarp(sum);
  if (threadIdx.x != 0) return;
  if (before > 0) sum = Add({total->loss_sum, total->correct, total->wrong, total->wrong_label}, sum);
  *total = {sum.loss, sum.correct, sum.wrong, sum.wrong_label};
}

struct Largest {
  float value;
  int64_t index;  // the first of equal ones
};

__device__ Largest LargestOfRow(const float* row, int64_t outputs) {
  Largest best{-INFINITY, outputs};
  for (int64_t i = threadIdx.x % kWarp; i < outputs; i += kWarp) {
    if (row[i] > best.value || best.index == outputs) best = {row[i], i};
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const Largest other{__shfl_xor_sync(0xffffffffu, best.value, distance),
                        __shfl_xor_sync(0xffffffffu, best.index, distance)};
    if (other.value > best.value || (other.value == best.value && other.index < best.index)) best = other;
  }
  return best;
}

// A row is a warp's. loss = log Σ_j e^(y_j) − Σ_j target_j · y_j, and ∂loss/∂y_j = softmax(y)_j − target_j
// (Goodfellow, Bengio, Courville: Deep Learning, 6.2.2.3); the target is 1 for the label unless it is
// smoothed.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    CrossEntropy(int64_t n, int64_t outputs, float smoothing, const float* y, const int32_t* labels,
                 float scale, T* dy, Sums* of_blocks, unsigned* arrived, LossSums* total, int64_t before) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  Sums sums{};
  for (int64_t r = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp; r < n;
       r += static_cast<int64_t>(gridDim.x) * kWarps) {
    const float* row = y + r * outputs;
    const int64_t label = labels[r];
    const Largest largest = LargestOfRow(row, outputs);
    float sum = 0;
    for (int64_t i = lane; i < outputs; i += kWarp) sum += expf(row[i] - largest.value);
    sum = ReduceWarp(sum, [](float a, float b) { return a + b; });

    if (label < 0 || label >= outputs) {
      sums = Add(sums, {0, 0, before + r + 1, label});
    } else {
      double expected = row[label];  // Σ target · y
      if (smoothing != 0) {
        double all = 0;
        for (int64_t i = lane; i < outputs; i += kWarp) all += row[i];
        all = ReduceWarp(all, [](double a, double b) { return a + b; });
        expected = (1.0 - smoothing) * expected + smoothing * all / static_cast<double>(outputs);
      }
      const double loss = log(static_cast<double>(sum)) + (static_cast<double>(largest.value) - expected);
      sums = Add(sums, {loss, largest.index == label ? 1 : 0, 0, 0});
    }
    if (dy != nullptr) {
      const float factor = scale / sum;
      const float others = scale * smoothing / static_cast<float>(outputs);
      for (int64_t i = lane; i < outputs; i += kWarp) {
        const float softmax = expf(row[i] - largest.value) * factor;
        const float gradient = softmax - others;
        Round(i == label ? gradient - scale * (1 - smoothing) : gradient, dy + r * outputs + i);
      }
    }
  }
  AddGrid(sums, of_blocks, arrived, total, before);
}

// loss = mean over the outputs of (y − target)².
template <typename T>
__global__ void __launch_bounds__(kThreads)
    MeanSquaredError(int64_t count, int64_t outputs, const float* y, const float* target, float factor, T* dy,
                     Sums* of_blocks, unsigned* arrived, LossSums* total, int64_t before) {
  double sum = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const double error = static_cast<double>(y[i]) - target[i];
    sum += error * error;
    if (dy != nullptr) Round(factor * (y[i] - target[i]), dy + i);
  }
  sum = ReduceWarp(sum, [](double a, double b) { return a + b; });
  AddGrid({sum / static_cast<double>(outputs), 0, 0, 0}, of_blocks, arrived, total, before);
}

class Loss final : public LossKernel {
 public:
  Loss(const LossOptions& options, const KernelContext& context)
      : options_(options),
        context_(context),
        of_blocks_(*context.allocator, kMostBlocks * sizeof(Sums)),
        arrived_(*context.allocator, sizeof(unsigned)) {
    LOCKSTEP_CUDA(cudaMemsetAsync(arrived_.data(), 0, sizeof(unsigned), context.stream));
  }

  void Compute(int64_t n, const float* y, const void* labels, float scale, void* dy, LossSums* sums,
               int64_t before) override {
    if (options_.output_gradient == DataType::kBFloat16) {
      Enqueue(n, y, labels, scale, static_cast<BFloat16*>(dy), sums, before);
    } else {
      Enqueue(n, y, labels, scale, static_cast<float*>(dy), sums, before);
    }
  }

 private:
  template <typename T>
  void Enqueue(int64_t n, const float* y, const void* labels, float scale, T* dy, LossSums* sums,
               int64_t before) {
    if (options_.kind == LossKind::kMeanSquaredError) {
      const int64_t count = n * options_.outputs;
      const float factor = 2 * scale / static_cast<float>(options_.outputs);
      LOCKSTEP_LAUNCH(MeanSquaredError<T>, Blocks(count, kThreads), kThreads, 0, context_.stream, count,
                      options_.outputs, y, static_cast<const float*>(labels), factor, dy,
                      of_blocks_.as<Sums>(), arrived_.as<unsigned>(), sums, before);
    } else {
      LOCKSTEP_LAUNCH(CrossEntropy<T>, Blocks(n, kWarps), kThreads, 0, context_.stream, n, options_.outputs,
                      options_.label_smoothing, y, static_cast<const int32_t*>(labels), scale, dy,
                      of_blocks_.as<Sums>(), arrived_.as<unsigned>(), sums, before);
    }
  }

  // (Not by the device's size: the same bits on all of one kind.)
  static unsigned Blocks(int64_t work, int64_t of_a_block) {
    const int64_t blocks = CeilDiv(work, of_a_block);
    return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
  }

  const LossOptions options_;
  const KernelContext context_;
  Buffer of_blocks_;
  Buffer arrived_;
};

}  // namespace

std::unique_ptr<LossKernel> MakeLoss(const LossOptions& options, const KernelContext& context) {
  return std::make_unique<Loss>(options, context);
}

}  // namespace lockstep::trainer::cuda
