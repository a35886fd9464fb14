#pragma once

#include <cstdint>

#include "trainer/backend/cuda/kernel_context.h"
#include "trainer/tensor/bfloat16.h"

// What a dense layer needs besides products.
namespace lockstep::trainer::cuda {

// How the rows of dy [n, units] are cut for their sum: one part alone is added up by its block, several by
// the block that finishes last.
struct BackwardGrid {
  int64_t stripes = 0;  // of columns, a block wide
  int64_t parts = 0;    // of rows
  int pack = 1;         // columns of a thread
};
// `pack`: the most columns a thread may have.
BackwardGrid BackwardGridFor(int64_t n, int64_t units, int pack, const KernelContext& context);

// Scratch memory for BackwardActivation: `parts` · units floats, and a counter a stripe, which is 0 between
// the calls.
struct BackwardScratch {
  float* sums = nullptr;
  unsigned* arrived = nullptr;
};

// That memory, for at most n rows.
class BackwardScratchMemory {
 public:
  BackwardScratchMemory() = default;
  BackwardScratchMemory(int64_t n, int64_t units, const KernelContext& context);
  BackwardScratch get() const { return {.sums = sums_.as<float>(), .arrived = arrived_.as<unsigned>()}; }

 private:
  Buffer sums_, arrived_;
};

// Masks dy [n, units] in place where y is not positive (unless y is null), and sums it over n into dbias
// (unless null), in fixed order. Y and T are float or BFloat16.
template <typename Y, typename T>
void BackwardActivation(int64_t n, int64_t units, const Y* y, T* dy, float* dbias,
                        const BackwardScratch& scratch, const KernelContext& context);

// to[begin, end) = from[begin, end), rounded.
void RoundToBFloat16(const float* from, BFloat16* to, int64_t begin, int64_t end,
                     const KernelContext& context);

}  // namespace lockstep::trainer::cuda
