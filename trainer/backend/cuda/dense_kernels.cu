#include <algorithm>

#include "trainer/backend/cuda/dense_kernels.h"
#include "trainer/backend/cuda/launch.h"
#include "trainer/backend/cuda/numbers.cuh"
#include "trainer/backend/cuda/reduce.cuh"

namespace lockstep::trainer::cuda {
namespace {

constexpr int kRows = 16;  // that a block has in work at a time, a warp each
constexpr int kThreads = kRows * kWarp;

// A warp's lanes have kPack neighbouring columns each, and kRows warps the rows of a part in turn; what the
// warps have summed is added in their order, and then the parts in theirs.
template <typename Y, typename T, int kPack, bool kMask, bool kBias>
__global__ void __launch_bounds__(kThreads)
    BackwardActivationKernel(int64_t n, int64_t units, const Y* y, T* dy, float* dbias,
                             BackwardScratch scratch) {
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kWarp + lane) * kPack;
  const int64_t part = CeilDiv(n, gridDim.y);
  const int64_t begin = blockIdx.y * part;
  const int64_t end = begin + part < n ? begin + part : n;

  float sums[kPack] = {};
  if (column < units) {
#pragma unroll 4
    for (int64_t r = begin + warp; r < end; r += kRows) {
      const int64_t at = r * units + column;
      Pack<T, kPack> gradient = LoadPack<kPack>(dy + at);
      if constexpr (kMask) {
        const Pack<Y, kPack> output = LoadPack<kPack>(y + at);
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          if (!(ToFloat32(output.values[i]) > 0)) gradient.values[i] = T{};
        }
        StorePack(dy + at, gradient);
      }
      if constexpr (kBias) {
#pragma unroll
        for (int i = 0; i < kPack; ++i) sums[i] += ToFloat32(gradient.values[i]);
      }
    }
  }
  if constexpr (kBias) {
    __shared__ float of_warps[kRows][kPack][kWarp];
#pragma unroll
    for (int i = 0; i < kPack; ++i) of_warps[warp][i][lane] = sums[i];
    __syncthreads();
    // From here on the first warps have a column a thread.
    const bool adds = warp < kPack;
    const int64_t mine = (static_cast<int64_t>(blockIdx.x) * kWarp + lane) * kPack + warp;
    float sum = 0;
    if (adds) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) sum += of_warps[i][warp][lane];
    }
    if (gridDim.y == 1) {
      if (adds && mine < units) dbias[mine] = sum;
      return;
    }
    if (adds && mine < units) scratch.sums[blockIdx.y * units + mine] = sum;
    if (!LastToArrive(scratch.arrived + blockIdx.x, gridDim.y) || !adds || mine >= units) return;
    sum = 0;
    for (unsigned i = 0; i < gridDim.y; ++i) sum += scratch.sums[i * units + mine];
    dbias[mine] = sum;
  }
}

constexpr int kRoundThreads = 256;
constexpr int kRoundPack = 4;

__global__ void __launch_bounds__(kRoundThreads)
    RoundKernel(const float* from, BFloat16* to, int64_t begin, int64_t end, bool aligned) {
  const int64_t first =
      (begin / kRoundPack + static_cast<int64_t>(blockIdx.x) * kRoundThreads + threadIdx.x) * kRoundPack;
  if (aligned && first >= begin && first + kRoundPack <= end) {
    const auto wide = LoadPack<kRoundPack>(from + first);
    Pack<BFloat16, kRoundPack> narrow;
#pragma unroll
    for (int i = 0; i < kRoundPack; ++i) Round(wide.values[i], &narrow.values[i]);
    StorePack(to + first, narrow);
    return;
  }
  for (int64_t i = first > begin ? first : begin; i < end && i < first + kRoundPack; ++i) {
    Round(from[i], to + i);
  }
}

}  // namespace

BackwardGrid BackwardGridFor(int64_t n, int64_t units, int pack, const KernelContext& context) {
  BackwardGrid grid;
  grid.pack = units % pack == 0 ? pack : 1;
  grid.stripes = CeilDiv(units, int64_t{kWarp} * grid.pack);
  // Enough blocks to fill the device, which holds four of this size a processor, but at least four rows a
  // thread.
  const int64_t wanted = std::max<int64_t>(1, 4 * context.multiprocessors / grid.stripes);
  grid.parts = std::min(wanted, CeilDiv(n, kRows * 4));
  return grid;
}

BackwardScratchMemory::BackwardScratchMemory(int64_t n, int64_t units, const KernelContext& context) {
  int64_t parts = 1;
  for (const int pack : {1, 4, 8}) parts = std::max(parts, BackwardGridFor(n, units, pack, context).parts);
  const int64_t stripes = BackwardGridFor(n, units, 1, context).stripes;
  sums_ = Buffer(*context.allocator, static_cast<size_t>(parts * units) * sizeof(float));
  arrived_ = Buffer(*context.allocator, static_cast<size_t>(stripes) * sizeof(unsigned));
  LOCKSTEP_CUDA(cudaMemsetAsync(arrived_.data(), 0, arrived_.bytes(), context.stream));
}

template <typename Y, typename T>
void BackwardActivation(int64_t n, int64_t units, const Y* y, T* dy, float* dbias,
                        const BackwardScratch& scratch, const KernelContext& context) {
  if (y == nullptr && dbias == nullptr) return;
  constexpr int kWidest = 16 / std::max(sizeof(Y), sizeof(T));
  const bool aligned = Aligned(sizeof(Pack<Y, kWidest>), y) && Aligned(sizeof(Pack<T, kWidest>), dy);
  const BackwardGrid plan = BackwardGridFor(n, units, aligned ? kWidest : 1, context);
  const dim3 grid(static_cast<unsigned>(plan.stripes), static_cast<unsigned>(plan.parts));
  const dim3 block(kWarp, kRows);
  const auto launch = [&]<int kPack>() {
    if (y != nullptr && dbias != nullptr) {
      LOCKSTEP_LAUNCH((BackwardActivationKernel<Y, T, kPack, true, true>), grid, block, 0, context.stream, n,
                      units, y, dy, dbias, scratch);
    } else if (y != nullptr) {
      LOCKSTEP_LAUNCH((BackwardActivationKernel<Y, T, kPack, true, false>), grid, block, 0, context.stream, n,
                      units, y, dy, dbias, scratch);
    } else {
      LOCKSTEP_LAUNCH((BackwardActivationKernel<Y, T, kPack, false, true>), grid, block, 0, context.stream, n,
                      units, y, dy, dbias, scratch);
    }
  };
  plan.pack == 1 ? launch.template operator()<1>() : launch.template operator()<kWidest>();
}

template void BackwardActivation(int64_t, int64_t, const float*, float*, float*, const BackwardScratch&,
                                 const KernelContext&);
template void BackwardActivation(int64_t, int64_t, const float*, BFloat16*, float*, const BackwardScratch&,
                                 const KernelContext&);
template void BackwardActivation(int64_t, int64_t, const BFloat16*, BFloat16*, float*, const BackwardScratch&,
                                 const KernelContext&);

void RoundToBFloat16(const float* from, BFloat16* to, int64_t begin, int64_t end,
                     const KernelContext& context) {
  if (begin >= end) return;
  const int64_t packs = CeilDiv(end, kRoundPack) - begin / kRoundPack;
  const bool aligned =
      Aligned(sizeof(Pack<float, kRoundPack>), from) && Aligned(sizeof(Pack<BFloat16, kRoundPack>), to);
  LOCKSTEP_LAUNCH(RoundKernel, static_cast<unsigned>(CeilDiv(packs, kRoundThreads)), kRoundThreads, 0,
                  context.stream, from, to, begin, end, aligned);
}

}  // namespace lockstep::trainer::cuda
