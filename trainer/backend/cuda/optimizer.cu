#include "trainer/backend/cuda/launch.h"
#include "trainer/backend/cuda/numbers.cuh"
#include "trainer/backend/cuda/optimizer.h"

namespace lockstep::trainer::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = 4;

// The rules spell out which operations are fused, so that an element's bits do not depend on the code around
// it: a pack, or the elements at a range's ends.

// What a thread needs of a step.
struct Now {
  float rate, twice_l2, scale, limit, decay;

  __device__ float Gradient(float gradient, float w) const {
    const float g = (twice_l2 != 0 ? fmaf(twice_l2, w, gradient) : gradient) * scale;
    const float below = g > limit ? limit : g;  // a NaN stays one
    return below < -limit ? -limit : below;
  }
  __device__ float Weight(float w) const { return decay != 0 ? fmaf(-decay, w, w) : w; }
};

struct AdamRule {
  static constexpr int kSlots = 2;
  AdamStep step;

  __device__ float rate() const { return step.alpha; }
  __device__ void operator()(const Now& now, float gradient, float* w, float* m, float* v) const {
    const float g = now.Gradient(gradient, *w);
    *m = fmaf(g - *m, step.one_minus_beta1, *m);
    *v = fmaf(fmaf(g, g, -*v), step.one_minus_beta2, *v);
    *w = now.Weight(*w) - now.rate * *m / (sqrtf(*v) + step.epsilon);
  }
};

struct SgdRule {
  static constexpr int kSlots = 0;
  SgdStep step;

  __device__ float rate() const { return step.learning_rate; }
  __device__ void operator()(const Now& now, float gradient, float* w, float*, float*) const {
    const float g = now.Gradient(gradient, *w);
    *w = fmaf(-now.rate, g, now.Weight(*w));
  }
};

struct MomentumRule {
  static constexpr int kSlots = 1;
  SgdStep step;

  __device__ float rate() const { return step.learning_rate; }
  __device__ void operator()(const Now& now, float gradient, float* w, float* velocity, float*) const {
    const float g = now.Gradient(gradient, *w);
    const float weight = now.Weight(*w);
    *velocity = fmaf(step.momentum, *velocity, -(now.rate * g));
    *w = step.nesterov ? fmaf(step.momentum, *velocity, fmaf(-now.rate, g, weight)) : weight + *velocity;
  }
};

template <typename Rule>
__device__ Now MakeNow(const Rule& rule, const StepRates* rates, const double* squared_norm) {
  const Adjustments& adjust = rule.step.adjust;
  Now now{rates != nullptr ? rates->rate : rule.rate(), 2 * adjust.l2, 1, adjust.limit, 0};
  if (adjust.decays) now.decay = rates != nullptr ? rates->decay : adjust.decay;
  if (adjust.norm_limit != 0) {
    const double norm = sqrt(*squared_norm);
    if (!(norm <= adjust.norm_limit)) {
      now.scale = static_cast<float>(adjust.norm_limit / norm + (norm - norm));
    }
  }
  return now;
}

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
    Update(Rule rule, const StepRates* rates, const double* squared_norm, float* parameters,
           const float* gradients, float* slot0, float* slot1, int64_t begin, int64_t end, bool aligned,
           const __grid_constant__ Copies copies) {
  const int64_t first = (begin / kPack + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack;
  if (first >= end) return;
  const Now now = MakeNow(rule, rates, squared_norm);

  if (aligned && first >= begin && first + kPack <= end) {
    auto w = LoadPack<kPack>(parameters + first);
    const auto g = LoadPack<kPack>(gradients + first);
    Pack<float, kPack> s0{}, s1{};
    if constexpr (Rule::kSlots > 0) s0 = LoadPack<kPack>(slot0 + first);
    if constexpr (Rule::kSlots > 1) s1 = LoadPack<kPack>(slot1 + first);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      rule(now, g.values[i], &w.values[i], &s0.values[i], &s1.values[i]);
    }
    StorePack(parameters + first, w);
    if constexpr (kCopies) WriteCopies(copies, first, w);
    if constexpr (Rule::kSlots > 0) StorePack(slot0 + first, s0);
    if constexpr (Rule::kSlots > 1) StorePack(slot1 + first, s1);
    return;
  }
  for (int64_t i = first > begin ? first : begin; i < end && i < first + kPack; ++i) {
    rule(now, gradients[i], parameters + i, Rule::kSlots > 0 ? slot0 + i : nullptr,
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
      LOCKSTEP_LAUNCH((Update<Rule, true>), blocks, kThreads, 0, context.stream, rule, buffers.rates,
                      buffers.squared_norm, buffers.parameters, buffers.gradients, slot0, slot1, begin, stop,
                      aligned, copies);
    } else {
      LOCKSTEP_LAUNCH((Update<Rule, false>), blocks, kThreads, 0, context.stream, rule, buffers.rates,
                      buffers.squared_norm, buffers.parameters, buffers.gradients, slot0, slot1, begin, stop,
                      aligned, copies);
    }
    begin = stop;
  }
}

__global__ void __launch_bounds__(kThreads)
    Average(float keep, const StepRates* rates, const float* parameters, float* average, int64_t begin,
            int64_t end) {
  const int64_t i = begin + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= end) return;
  const float kept = rates != nullptr ? rates->keep : keep;
  average[i] = fmaf(kept, average[i], (1 - kept) * parameters[i]);
}

__global__ void __launch_bounds__(kThreads) Add(float factor, const float* from, float* to, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) to[i] = fmaf(factor, from[i], to[i]);
}

unsigned BlocksFor(int64_t count) { return static_cast<unsigned>(CeilDiv(count, kThreads)); }

}  // namespace

void MoveAverage(float keep, const StepRates* rates, const float* parameters, float* average, int64_t begin,
                 int64_t end, const KernelContext& context) {
  if (begin >= end) return;
  LOCKSTEP_LAUNCH(Average, BlocksFor(end - begin), kThreads, 0, context.stream, keep, rates, parameters,
                  average, begin, end);
}

void Accumulate(float factor, const float* from, float* to, int64_t count, const KernelContext& context) {
  if (count <= 0) return;
  LOCKSTEP_LAUNCH(Add, BlocksFor(count), kThreads, 0, context.stream, factor, from, to, count);
}

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
