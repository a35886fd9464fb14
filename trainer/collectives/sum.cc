#include "trainer/collectives/sum.h"

namespace lockstep::trainer::collectives {
namespace {

// The compiler makes of this whatever registers the processor has. (Not a loop for it to vectorise: how it
// cuts one up depends on its options.) The resolvers of target_clones run before a sanitizer is ready for
// them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOCKSTEP_CLONES
#else
#define LOCKSTEP_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

constexpr size_t kWidth = 16;
// (Never `auto` for it: that forgets the alignment.)
typedef float Wide __attribute__((vector_size(kWidth * sizeof(float)), aligned(4), may_alias));

LOCKSTEP_CLONES void SumWide(const float* const* from, size_t ranks, float* to, size_t count) {
  for (size_t i = 0; i < count; i += 4 * kWidth) {
    const Wide* first = reinterpret_cast<const Wide*>(from[0] + i);
    Wide a = first[0], b = first[1], c = first[2], d = first[3];
    for (size_t r = 1; r < ranks; ++r) {
      const Wide* next = reinterpret_cast<const Wide*>(from[r] + i);
      a += next[0];
      b += next[1];
      c += next[2];
      d += next[3];
    }
    Wide* sum = reinterpret_cast<Wide*>(to + i);
    sum[0] = a;
    sum[1] = b;
    sum[2] = c;
    sum[3] = d;
  }
}

template <typename T>
void SumScalar(std::span<const T* const> from, T* to, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    T sum = from[0][i];
    for (size_t r = 1; r < from.size(); ++r) sum += from[r][i];
    to[i] = sum;
  }
}

}  // namespace

void SumInOrder(std::span<const float* const> from, float* to, size_t count) {
  const size_t wide = count - count % (4 * kWidth);
  SumWide(from.data(), from.size(), to, wide);
  SumScalar(from, to, wide, count);
}

void SumInOrder(std::span<const double* const> from, double* to, size_t count) {
  SumScalar(from, to, 0, count);
}

}  // namespace lockstep::trainer::collectives
