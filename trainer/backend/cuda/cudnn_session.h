#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <string>

#include "trainer/backend/cuda/cudnn_library.h"

namespace lockstep::trainer::cuda {

// A backend's cuDNN: opened when it is first asked for, with a handle that works on the backend's stream.
class CudnnSession {
 public:
  // Whether there is one; else `why` says what is missing.
  bool Available(std::string* why);
  // Only if there is one. The device is the calling thread's current one.
  cudnnHandle_t Handle(cudaStream_t stream);
  const Cudnn& functions() const { return *cudnn_; }

 private:
  bool asked_ = false;
  std::optional<Cudnn> cudnn_;
  std::string why_not_;
  std::unique_ptr<cudnnContext, decltype(&::cudnnDestroy)> handle_{nullptr, nullptr};
};

}  // namespace lockstep::trainer::cuda
