#include "trainer/backend/cuda/gather.h"
#include "trainer/backend/cuda/launch.h"
#include "trainer/backend/cuda/numbers.cuh"

namespace lockstep::trainer::cuda {
namespace {

constexpr int kMostThreads = 256;
constexpr int kWarpThreads = 32;
constexpr int kWidest = 4;  // values a thread converts at a time

// A block has a row. Its number may lie in host memory, so that one thread alone fetches it.
template <typename In, typename Out, int kPack>
__global__ void __launch_bounds__(kMostThreads) GatherKernel(GatherOptions options) {
  __shared__ int64_t sample;
  const int64_t r = blockIdx.x;
  if (threadIdx.x == 0) {
    sample = options.samples != nullptr ? options.samples[r] : r;
    const int32_t* targets = static_cast<const int32_t*>(options.targets);
    if (options.labels_to_float) {
      static_cast<float*>(options.labels)[r] = static_cast<float>(targets[sample]);
    } else {
      static_cast<int32_t*>(options.labels)[r] = targets[sample];
    }
  }
  __syncthreads();
  const In* from = static_cast<const In*>(options.rows) + sample * options.features;
  Out* to = static_cast<Out*>(options.inputs) + r * options.features;
  for (int64_t i = int64_t{threadIdx.x} * kPack; i < options.features; i += int64_t{blockDim.x} * kPack) {
    const Pack<In, kPack> stored = LoadPack<kPack>(from + i);
    Pack<Out, kPack> values;
#pragma unroll
    for (int j = 0; j < kPack; ++j) Round(ToFloat32(stored.values[j]) * options.scale, &values.values[j]);
    StorePack(to + i, values);
  }
}

template <typename In, typename Out>
void Enqueue(const GatherOptions& options, const KernelContext& context) {
  const bool whole_packs = options.features % kWidest == 0 &&
                           Aligned(sizeof(Pack<In, kWidest>), options.rows) &&
                           Aligned(sizeof(Pack<Out, kWidest>), options.inputs);
  const int64_t steps = whole_packs ? options.features / kWidest : options.features;
  const int64_t wanted = steps == 0 ? kWarpThreads : CeilDiv(steps, kWarpThreads) * kWarpThreads;
  const auto threads = static_cast<unsigned>(wanted < kMostThreads ? wanted : kMostThreads);
  const auto blocks = static_cast<unsigned>(options.n);
  if (whole_packs) {
    LOCKSTEP_LAUNCH((GatherKernel<In, Out, kWidest>), blocks, threads, 0, context.stream, options);
  } else {
    LOCKSTEP_LAUNCH((GatherKernel<In, Out, 1>), blocks, threads, 0, context.stream, options);
  }
}

template <typename In>
void EnqueueFrom(const GatherOptions& options, const KernelContext& context) {
  if (options.input_type == DataType::kBFloat16) return Enqueue<In, BFloat16>(options, context);
  Enqueue<In, float>(options, context);
}

}  // namespace

void Gather(const GatherOptions& options, const KernelContext& context) {
  if (options.n == 0) return;
  if (options.row_type == DataType::kUInt8) return EnqueueFrom<uint8_t>(options, context);
  EnqueueFrom<float>(options, context);
}

}  // namespace lockstep::trainer::cuda
