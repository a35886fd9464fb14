#include "trainer/backend/cpu/layer_loops.h"

#include <algorithm>
#include <cmath>

// As vector_kernels.cc: one body, three instruction sets.
namespace lockstep::trainer::cpu {
namespace {

namespace baseline {
#include "trainer/backend/cpu/exponential.inc"
#include "trainer/backend/cpu/layer_loops.inc"
}  // namespace baseline

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#include "trainer/backend/cpu/exponential.inc"
#include "trainer/backend/cpu/layer_loops.inc"
}  // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
namespace avx512 {
#include "trainer/backend/cpu/exponential.inc"
#include "trainer/backend/cpu/layer_loops.inc"
}  // namespace avx512
#pragma GCC pop_options

}  // namespace

const LayerLoops& LoopsFor(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return avx512::kLoops;
    case Isa::kAvx2:
      return avx2::kLoops;
    case Isa::kBaseline:
      break;
  }
  return baseline::kLoops;
}

}  // namespace lockstep::trainer::cpu
