#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>

#include "trainer/backend/cuda/check.h"

namespace lockstep::trainer::cuda {

// Thrown while work is recorded into a graph by what cannot be part of one. Never leaves the backend: the
// caller then enqueues its work directly.
struct NotRecordable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline bool IsRecording(cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  LOCKSTEP_CUDA(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace lockstep::trainer::cuda
