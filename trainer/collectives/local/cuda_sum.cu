#include <cstdint>

#include "trainer/backend/cuda/launch.h"
#include "trainer/collectives/local/cuda_sum.h"

namespace lockstep::trainer::collectives::cuda {
namespace {

constexpr int kThreads = 256;
// Two for each multiprocessor of the largest devices there are: enough to keep their memory busy.
constexpr size_t kMostBlocks = 288;

__device__ float Add(float a, float b) { return a + b; }
__device__ float4 Add(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

// In elements of Vector. `kRanks` ranks, known to the compiler so that all loads are under way at once; 0: as
// many as `across` says.
template <typename Vector, int kRanks>
__global__ void __launch_bounds__(kThreads) SumElements(Across<float> across, size_t begin, size_t end) {
  const int ranks = kRanks > 0 ? kRanks : across.ranks;
  const size_t stride = static_cast<size_t>(gridDim.x) * kThreads;
  for (size_t i = begin + static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x; i < end; i += stride) {
    Vector sum = reinterpret_cast<const Vector*>(across.from[0])[i];
    for (int r = 1; r < ranks; ++r) sum = Add(sum, reinterpret_cast<const Vector*>(across.from[r])[i]);
    for (int t = 0; t < across.targets; ++t) reinterpret_cast<Vector*>(across.to[t])[i] = sum;
  }
}

template <typename Vector>
void Launch(const Across<float>& across, size_t begin, size_t end, cudaStream_t stream) {
  if (begin >= end) return;
  size_t blocks = (end - begin + kThreads - 1) / kThreads;
  if (blocks > kMostBlocks) blocks = kMostBlocks;
  const auto grid = static_cast<unsigned>(blocks);
  switch (across.ranks) {
    case 2:
      LOCKSTEP_LAUNCH((SumElements<Vector, 2>), grid, kThreads, 0, stream, across, begin, end);
      break;
    case 4:
      LOCKSTEP_LAUNCH((SumElements<Vector, 4>), grid, kThreads, 0, stream, across, begin, end);
      break;
    case 8:
      LOCKSTEP_LAUNCH((SumElements<Vector, 8>), grid, kThreads, 0, stream, across, begin, end);
      break;
    default:
      LOCKSTEP_LAUNCH((SumElements<Vector, 0>), grid, kThreads, 0, stream, across, begin, end);
  }
}

__global__ void SumReports(Across<DeviceReport> across) {
  DeviceReport sum = *across.from[0];
  for (int r = 1; r < across.ranks; ++r) {
    const DeviceReport& report = *across.from[r];
    sum.loss_sum += report.loss_sum;
    sum.correct += report.correct;
    sum.samples += report.samples;
    sum.stop += report.stop;
  }
  for (int t = 0; t < across.targets; ++t) *across.to[t] = sum;
}

}  // namespace

void SumInRankOrder(const Across<float>& across, size_t begin, size_t end, cudaStream_t stream) {
  // Where the first element lies on 16 bytes, all but a few at both ends are added four at a time.
  constexpr size_t kWide = 4;
  const bool wide = reinterpret_cast<uintptr_t>(across.from[0]) % sizeof(float4) == 0;
  const size_t first = (begin + kWide - 1) / kWide, last = end / kWide;
  if (!wide || first >= last) return Launch<float>(across, begin, end, stream);
  Launch<float>(across, begin, first * kWide, stream);
  Launch<float4>(across, first, last, stream);
  Launch<float>(across, last * kWide, end, stream);
}

void SumInRankOrder(const Across<DeviceReport>& across, cudaStream_t stream) {
  LOCKSTEP_LAUNCH(SumReports, 1, 1, 0, stream, across);
}

}  // namespace lockstep::trainer::collectives::cuda
