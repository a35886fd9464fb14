#pragma once

#include <cuda_runtime_api.h>

#include "trainer/backend/cuda/check.h"

namespace lockstep::trainer::cuda {

// Makes a device the calling thread's current one, for good: whoever needs one says so first. A process may
// have layers on several.
inline void UseDevice(int ordinal) { LOCKSTEP_CUDA(cudaSetDevice(ordinal)); }

}  // namespace lockstep::trainer::cuda
