#include "trainer/collectives/local/stream_copy.h"

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace lockstep::trainer::collectives {

void StreamCopy(float* to, const float* from, size_t count) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::memcpy(to, from, count * sizeof(float));  // which they see
#else
  size_t i = 0;
  for (; i < count && reinterpret_cast<uintptr_t>(to + i) % 16 != 0; ++i) to[i] = from[i];
  for (; i + 4 <= count; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
  for (; i < count; ++i) to[i] = from[i];
  _mm_sfence();
#endif
}

}  // namespace lockstep::trainer::collectives
