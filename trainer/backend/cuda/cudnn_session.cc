#include "trainer/backend/cuda/cudnn_session.h"

#include "trainer/backend/cuda/check.h"

namespace lockstep::trainer::cuda {

void Cudnn::Check(cudnnStatus_t status, const char* operation, const char* file, int line) const {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]] {
    return;
  }
  ThrowLibraryError(cudnnGetErrorString(status),
                    status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
                        status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
                    operation, file, line);
}

bool CudnnSession::Available(std::string* why) {
  if (!asked_) cudnn_ = OpenCudnn(&why_not_);
  asked_ = true;
  if (!cudnn_) *why = why_not_;
  return cudnn_.has_value();
}

cudnnHandle_t CudnnSession::Handle(cudaStream_t stream) {
  if (handle_ == nullptr) {
    cudnnHandle_t handle = nullptr;
    LOCKSTEP_CUDNN(*cudnn_, cudnnCreate(&handle));
    handle_ = {handle, cudnn_->cudnnDestroy};
    LOCKSTEP_CUDNN(*cudnn_, cudnnSetStream(handle, stream));
  }
  return handle_.get();
}

}  // namespace lockstep::trainer::cuda
