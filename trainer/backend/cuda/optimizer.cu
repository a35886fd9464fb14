#include "trainer/backend/cuda/launch.h"
#include "trainer/backend/cuda/numbers.cuh"
#include "trainer/backend/cuda/optimizer.h"

namespace lockstep::trainer::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = 4;

// The rules spell out which operations are fused, so that an element's bits do not depend on the code around
// it: a pack, or the elements at a range's ends.

struct AdamRule {
  static constexpr int kSlots = 2;
  AdamStep step;

  __device__ float rate() const { return step.alpha; }
  __device__ void operator()(float rate, float gradient, float* w, float* m, float* v) const {
    const float g = step.l2 != 0 ? fmaf(2 * step.l2, *w, gradient) : gradient;
    *m = fmaf(g - *m, step.one_minus_beta1, *m);
    *v = fmaf(fmaf(g, g, -*v), step.one_minus_beta2, *v);
    *w -= rate * *m / (sqrtf(*v) + step.epsilon);
  }
};

struct SgdRule {
  static constexpr int kSlots = 0;
  SgdStep step;

  __device__ float rate() const { return step.learning_rate; }
  __device__ void operator()(float rate, float gradient, float* w, float*, float*) const {
    const float g = step.l2 != 0 ? fmaf(2 * step.l2, *w, gradient) : gradient;
    *w = fmaf(-rate, g, *w);
  }
};

struct MomentumRule {
  static constexpr int kSlots = 1;
  SgdStep step;

  __device__ float rate() const { return step.learning_rate; }
  __device__ void operator()(float rate, float gradient, float* w, float* velocity, float*) const {
    const float g = step.l2 != 0 ? fmaf(2 * step.l2, *w, gradient) : gradient;
    *velocity = fmaf(step.momentum, *velocity, -(rate * g));
    *w = step.nesterov ? fmaf(step.momentum, *velocity, fmaf(-rate, g, *w)) : *w + *velocity;
  }
};

// The copies that a launch writes; a launch more for each kMostCopies.
constexpr int kMostCopies = 32;
struct Copies {
  int count;
  RoundedCopy copies[kMostCopies];
};

// Elements [first, first + kCount) of what is written to the parameters.
template <int kCount>
__device__ void WriteCopies(const Copies& copies, int64_t first, const Pack<float, kCount>& w) {
  for (int i = 0; i < copies.count; ++i) {
    const int64_t begin = copies.copies[i].begin, end = copies.copies[i].end;
    if (first >= end || first + kCount <= begin) continue;
    BFloat16* to = copies.copies[i].to + (first - begin);
    if (first >= begin && first + kCount <= end && (first - begin) % kCount == 0) {
      Pack<BFloat16, kCount> rounded;
#pragma unroll
      for (int j = 0; j < kCount; ++j) Round(w.values[j], &rounded.values[j]);
      StorePack(to, rounded);
    } else {
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        if (first + j >= begin && first + j < end) Round(w.values[j], to + j);
      }
    }
  }
}

// A thread has one pack of each buffer, or its elements within the range where that ends inside the pack.
// (At least one block a processor: said, because ptxas else takes 32 registers as its aim and spills.)
template <typename Rule, bool kCopies>
__global__ void __launch_bounds__(kThreads, 1)
    Update(Rule rule, const float* rate_in_memory, float* parameters, const float* gradients, float* slot0,
           float* slot1, int64_t begin, int64_t end, bool aligned, const __grid_constant__ Copies copies) {
  const int64_t first = (begin / kPack + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack;
  if (first >= end) return;
  const float rate = rate_in_memory != nullptr ? *rate_in_memory : rule.rate();

  if (aligned && first >= begin && first + kPack <= end) {
    auto w = LoadPack<kPack>(parameters + first);
    const auto g = LoadPack<kPack>(gradients + first);
    Pack<float, kPack> s0{}, s1{};
    if constexpr (Rule::kSlots > 0) s0 = LoadPack<kPack>(slot0 + first);
    if constexpr (Rule::kSlots > 1) s1 = LoadPack<kPack>(slot1 + first);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      rule(rate, g.values[i], &w.values[i], &s0.values[i], &s1.values[i]);
    }
    StorePack(parameters + first, w);
    if constexpr (kCopies) WriteCopies(copies, first, w);
    if constexpr (Rule::kSlots > 0) StorePack(slot0 + first, s0);
    if constexpr (Rule::kSlots > 1) StorePack(slot1 + first, s1);
    return;
  }
  for (int64_t i = first > begin ? first : begin; i < end && i < first + kPack; ++i) {
    rule(rate, gradients[i], parameters + i, Rule::kSlots > 0 ? slot0 + i : nullptr,
         Rule::kSlots > 1 ? slot1 + i : nullptr);
    if constexpr (kCopies) WriteCopies<1>(copies, i, {{parameters[i]}});
  }
}

// Takes those of `rounded` that have a part in [begin, end), and returns where it had to stop.
int64_t Take(std::span<const RoundedCopy> rounded, int64_t begin, int64_t end, Copies* copies) {
  copies->count = 0;
  for (const RoundedCopy& copy : rounded) {
    if (copy.end <= begin || copy.begin >= end) continue;
    if (copies->count == kMostCopies) return copy.begin;
    copies->copies[copies->count++] = copy;
  }
  return end;
}

template <typename Rule>
void Enqueue(const Rule& rule, const UpdateBuffers& buffers, int64_t begin, int64_t end,
             const KernelContext& context) {
  float* slot0 = Rule::kSlots > 0 ? buffers.slots[0] : nullptr;
  float* slot1 = Rule::kSlots > 1 ? buffers.slots[1] : nullptr;
  const bool aligned =
      Aligned(sizeof(Pack<float, kPack>), buffers.parameters, buffers.gradients, slot0, slot1);
  while (begin < end) {
    Copies copies;
    const int64_t stop = Take(buffers.rounded, begin, end, &copies);
    const int64_t packs = CeilDiv(stop, kPack) - begin / kPack;
    const auto blocks = static_cast<unsigned>(CeilDiv(packs, kThreads));
    if (copies.count > 0) {
      LOCKSTEP_LAUNCH((Update<Rule, true>), blocks, kThreads, 0, context.stream, rule, buffers.rate,
                      buffers.parameters, buffers.gradients, slot0, slot1, begin, stop, aligned, copies);
    } else {
      LOCKSTEP_LAUNCH((Update<Rule, false>), blocks, kThreads, 0, context.stream, rule, buffers.rate,
                      buffers.parameters, buffers.gradients, slot0, slot1, begin, stop, aligned, copies);
    }
    begin = stop;
  }
}

}  // namespace

void Sgd(const SgdStep& step, const UpdateBuffers& buffers, int64_t begin, int64_t end,
         const KernelContext& context) {
  if (step.momentum != 0) return Enqueue(MomentumRule{step}, buffers, begin, end, context);
  Enqueue(SgdRule{step}, buffers, begin, end, context);
}

void Adam(const AdamStep& step, const UpdateBuffers& buffers, int64_t begin, int64_t end,
          const KernelContext& context) {
  Enqueue(AdamRule{step}, buffers, begin, end, context);
}

}  // namespace lockstep::trainer::cuda
