#include "trainer/backend/cuda/launch.h"
#include "trainer/backend/cuda/set_float.h"

namespace lockstep::trainer::cuda {
namespace {

__global__ void Set(float* where, float value) { *where = value; }

}  // namespace

void SetFloat(float* where, float value, cudaStream_t stream) {
  LOCKSTEP_LAUNCH(Set, 1, 1, 0, stream, where, value);
}

}  // namespace lockstep::trainer::cuda
