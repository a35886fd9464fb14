#include "trainer/backend/cpu/vector_kernels.h"

#include <xmmintrin.h>

// One body, three instruction sets: the pragma gives each copy its target, the namespace its names. (Not
// target_clones: its resolvers run before a sanitizer is ready. Not flags for a file each: inline functions
// of the standard library compiled there could end up in code that runs everywhere.)
namespace lockstep::trainer::cpu {
namespace {

namespace baseline {
#include "trainer/backend/cpu/exponential.inc"
#include "trainer/backend/cpu/vector_kernels.inc"
}  // namespace baseline

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#include "trainer/backend/cpu/exponential.inc"
#include "trainer/backend/cpu/vector_kernels.inc"
}  // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
namespace avx512 {
#include "trainer/backend/cpu/exponential.inc"
#include "trainer/backend/cpu/vector_kernels.inc"
}  // namespace avx512
#pragma GCC pop_options

}  // namespace

Isa BestIsa(Isa limit) {
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (limit >= Isa::kAvx512 && has_avx512) return Isa::kAvx512;
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return limit >= Isa::kAvx2 && has_avx2 ? Isa::kAvx2 : Isa::kBaseline;
}

const VectorKernels& KernelsFor(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return avx512::kKernels;
    case Isa::kAvx2:
      return avx2::kKernels;
    case Isa::kBaseline:
      break;
  }
  return baseline::kKernels;
}

ScopedFlushDenormals::ScopedFlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040u); }
ScopedFlushDenormals::~ScopedFlushDenormals() { _mm_setcsr(saved_); }

}  // namespace lockstep::trainer::cpu
