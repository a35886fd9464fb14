#pragma once

#include <cstdint>

#include "trainer/backend/kernels.h"
#include "trainer/tensor/bfloat16.h"

// The element-wise kernels, each compiled once for every instruction set below. Within one set the result of
// an element does not depend on how the range was cut.
namespace lockstep::trainer::cpu {

enum class Isa { kBaseline, kAvx2, kAvx512 };

struct VectorKernels {
  // Over `count` elements; m and v, or velocity, are the slots. `scale`: see Adjustments.
  void (*adam)(const AdamStep& step, float scale, int64_t count, float* w, const float* g, float* m,
               float* v);
  void (*sgd)(const SgdStep& step, float scale, int64_t count, float* w, const float* g, float* velocity);
  void (*move_average)(float keep, int64_t count, const float* w, float* average);
  void (*accumulate)(float factor, int64_t count, const float* from, float* to);

  // dy [n, units] is masked in place where y is not positive (unless y is null), and summed over n into dbias
  // (unless null).
  void (*activation_backward_f32)(int64_t n, int64_t units, const float* y, float* dy, float* dbias);
  void (*activation_backward_bf16)(int64_t n, int64_t units, const BFloat16* y, BFloat16* dy, float* dbias);

  void (*to_bfloat16)(int64_t count, const float* from, BFloat16* to);

  // scratch = e^(logit − the largest of its row) for logits [n, outputs]; with each row's sum of these and
  // its largest logit.
  void (*exponentials)(int64_t n, int64_t outputs, const float* logits, float* scratch, float* sums,
                       float* maxima);
  // dy = scratch · scale / sum of its row.
  void (*scale_rows)(int64_t n, int64_t outputs, const float* scratch, const float* sums, float scale,
                     float* dy);

  double (*sum_of_squares)(int64_t count, const float* data);
};

// The best set this processor has, but none above `limit`.
Isa BestIsa(Isa limit = Isa::kAvx512);
const VectorKernels& KernelsFor(Isa isa);

// Until it is destroyed, this thread treats denormal numbers as zero. (Adam's moments of weights whose
// gradients have ceased decay through them, and they cost a hundred cycles each.)
class ScopedFlushDenormals {
 public:
  ScopedFlushDenormals();
  ~ScopedFlushDenormals();
  ScopedFlushDenormals(const ScopedFlushDenormals&) = delete;
  ScopedFlushDenormals& operator=(const ScopedFlushDenormals&) = delete;

 private:
  unsigned saved_;
};

}  // namespace lockstep::trainer::cpu
