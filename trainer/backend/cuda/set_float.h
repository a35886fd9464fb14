#pragma once

#include <cuda_runtime_api.h>

namespace lockstep::trainer::cuda {

// Enqueues *where = value, with the value as it is now.
void SetFloat(float* where, float value, cudaStream_t stream);

}  // namespace lockstep::trainer::cuda
