#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

// What a call into CUDA returned becomes an exception here and nowhere else:
//   LOCKSTEP_CUDA(cudaEventRecord(event, stream));
// throws OutOfMemory where the device has no memory left, DeviceLost for everything else, with operation,
// place and the error's name. LOCKSTEP_CUBLAS is the same for cuBLASLt. In destructors, which must not throw:
// LOCKSTEP_CUDA_NOTHROW; a broken device says so again at the next call.
namespace lockstep::trainer::cuda {

[[noreturn]] void ThrowCudaError(cudaError_t error, const char* operation, const char* file, int line);
[[noreturn]] void ThrowCublasError(cublasStatus_t status, const char* operation, const char* file, int line);
[[noreturn]] void ThrowLibraryError(const char* error, bool out_of_memory, const char* operation,
                                    const char* file, int line);

inline void CheckCuda(cudaError_t error, const char* operation, const char* file, int line) {
  if (error != cudaSuccess) [[unlikely]] {
    ThrowCudaError(error, operation, file, line);
  }
}
inline void CheckCublas(cublasStatus_t status, const char* operation, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]] {
    ThrowCublasError(status, operation, file, line);
  }
}

}  // namespace lockstep::trainer::cuda

#define LOCKSTEP_CUDA(call) ::lockstep::trainer::cuda::CheckCuda((call), #call, __FILE__, __LINE__)
#define LOCKSTEP_CUBLAS(call) ::lockstep::trainer::cuda::CheckCublas((call), #call, __FILE__, __LINE__)
#define LOCKSTEP_CUDA_NOTHROW(call) static_cast<void>(call)
