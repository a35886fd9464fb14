#include "trainer/backend/cuda/launch.h"
#include "trainer/backend/cuda/numbers.cuh"
#include "trainer/backend/cuda/reduce.cuh"
#include "trainer/backend/cuda/reduce.h"

namespace lockstep::trainer::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = kSumOfSquaresScratch - 1;

// The sum over a block, in its first thread.
__device__ double ReduceBlock(double value) {
  __shared__ double of_warps[kThreads / kWarp];
  const auto add = [](double a, double b) { return a + b; };
  value = ReduceWarp(value, add);
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kThreads / kWarp; ++warp) value += of_warps[warp];
  }
  return value;
}

__global__ void __launch_bounds__(kThreads) SquaresOfBlocks(const float* data, int64_t count, double* sums) {
  double sum = 0;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    const double value = data[i];
    sum += value * value;
  }
  sum = ReduceBlock(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) AddBlocks(const double* sums, int64_t blocks, double* total) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < blocks; i += kThreads) sum += sums[i];
  sum = ReduceBlock(sum);
  if (threadIdx.x == 0) *total = sum;
}

__global__ void AddOne(const double* from, double* to) { *to += *from; }

}  // namespace

void SumOfSquares(const float* data, int64_t count, double* scratch, const KernelContext& context) {
  constexpr int64_t kPerThread = 8;
  int64_t blocks = CeilDiv(count, kThreads * kPerThread);
  if (blocks < 1) blocks = 1;
  if (blocks > kMostBlocks) blocks = kMostBlocks;
  LOCKSTEP_LAUNCH(SquaresOfBlocks, static_cast<unsigned>(blocks), kThreads, 0, context.stream, data, count,
                  scratch + 1);
  LOCKSTEP_LAUNCH(AddBlocks, 1, kThreads, 0, context.stream, scratch + 1, blocks, scratch);
}

void AddNumber(const double* from, double* to, const KernelContext& context) {
  LOCKSTEP_LAUNCH(AddOne, 1, 1, 0, context.stream, from, to);
}

}  // namespace lockstep::trainer::cuda
