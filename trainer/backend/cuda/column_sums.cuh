#pragma once

#include <algorithm>
#include <cstdint>

#include "trainer/backend/cuda/kernel_context.h"
#include "trainer/backend/cuda/launch.h"
#include "trainer/backend/cuda/numbers.cuh"
#include "trainer/backend/cuda/reduce.cuh"
#include "trainer/tensor/buffer.h"

namespace lockstep::trainer::cuda {

inline constexpr int kColumnRows = 8;  // that a block has in work at a time, a warp each
inline constexpr int kColumnThreads = kColumnRows * kWarp;
inline constexpr int kColumnChunk =
    16;  // rows of a warp that are summed in float32 before they are added in double

struct ColumnScratch {
  double* parts = nullptr;      // [parts, 2, width]
  unsigned* arrived = nullptr;  // a stripe of columns each; 0 between the launches
};

// sums[c] = Σ first and sums[channels + c] = Σ second of `terms(i, row, c)`, for the elements i = row ·
// channels + c of a matrix [.., channels]. Few channels are done several rows at a time, as a row of `width`:
// a warp's lanes have neighbouring columns. What the warps have summed is added in their order, then the
// parts in theirs, then the rows that lie side by side.
template <typename Terms>
__global__ void __launch_bounds__(kColumnThreads)
    ColumnSumsKernel(int64_t count, int64_t width, int64_t channels, Terms terms, ColumnScratch scratch,
                     double* sums) {
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  const int64_t rows = CeilDiv(count, width), part = CeilDiv(rows, gridDim.y);
  const int64_t begin = blockIdx.y * part;
  const int64_t end = begin + part < rows ? begin + part : rows;
  const int64_t channel = column % channels, beside = column / channels, repeats = width / channels;

  double totals[2] = {};
  if (column < width) {
    for (int64_t r = begin + warp; r < end;) {
      float first = 0, second = 0;
#pragma unroll 4
      for (int i = 0; i < kColumnChunk && r < end; ++i, r += kColumnRows) {
        const int64_t at = r * width + column;
        if (at < count) terms(at, r * repeats + beside, channel, &first, &second);
      }
      totals[0] += first;
      totals[1] += second;
    }
  }
  __shared__ double of_warps[kColumnRows][2][kWarp];
  of_warps[warp][0][lane] = totals[0];
  of_warps[warp][1][lane] = totals[1];
  __syncthreads();
  // From here on the first two warps have a sum each.
  const bool adds = warp < 2;
  double sum = 0;
  if (adds) {
    for (int i = 0; i < kColumnRows; ++i) sum += of_warps[i][warp][lane];
  }
  if (gridDim.y > 1) {
    if (adds && column < width) scratch.parts[(blockIdx.y * 2 + warp) * width + column] = sum;
    if (!LastToArrive(scratch.arrived + blockIdx.x, gridDim.y)) return;
    if (adds && column < width) {
      sum = 0;
      for (unsigned i = 0; i < gridDim.y; ++i) sum += scratch.parts[(i * 2 + warp) * width + column];
    }
  }
  __syncthreads();
  if (adds) of_warps[0][warp][lane] = sum;
  __syncthreads();
  if (!adds || column >= width || beside > 0) return;
  sum = 0;
  for (int64_t i = 0; i < repeats; ++i) sum += of_warps[0][warp][lane + i * channels];
  sums[warp * channels + channel] = sum;
}

// Runs the above for matrices of so many channels.
class ColumnSums {
 public:
  ColumnSums(int64_t channels, const KernelContext& context)
      : channels_(channels),
        width_(channels < kWarp ? kWarp / channels * channels : channels),
        stripes_(CeilDiv(width_, kWarp)),
        most_parts_(std::max<int64_t>(1, kMostBlocks / stripes_)),
        parts_(*context.allocator, static_cast<size_t>(most_parts_ * 2 * width_) * sizeof(double)),
        arrived_(*context.allocator, static_cast<size_t>(stripes_) * sizeof(unsigned)) {
    LOCKSTEP_CUDA(cudaMemsetAsync(arrived_.data(), 0, arrived_.bytes(), context.stream));
  }

  // Enqueues: sums [2, channels] over `rows` > 0 rows.
  template <typename Terms>
  void Run(int64_t rows, Terms terms, double* sums, const KernelContext& context) const {
    const int64_t count = rows * channels_;
    const int64_t parts =
        std::clamp<int64_t>(CeilDiv(CeilDiv(count, width_), kColumnRows * kColumnChunk), 1, most_parts_);
    LOCKSTEP_LAUNCH(ColumnSumsKernel<Terms>,
                    dim3(static_cast<unsigned>(stripes_), static_cast<unsigned>(parts)),
                    dim3(kWarp, kColumnRows), 0, context.stream, count, width_, channels_, terms,
                    (ColumnScratch{parts_.as<double>(), arrived_.as<unsigned>()}), sums);
  }

 private:
  // (Not by the device's size: the same bits on all of them.)
  static constexpr int64_t kMostBlocks = 1024;

  int64_t channels_;
  int64_t width_;
  int64_t stripes_;
  int64_t most_parts_;
  Buffer parts_, arrived_;
};

}  // namespace lockstep::trainer::cuda
