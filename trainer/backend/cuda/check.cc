#include "trainer/backend/cuda/check.h"

#include <string>
#include <string_view>

#include "trainer/error.h"

namespace lockstep::trainer::cuda {
namespace {

// "cudaMallocAsync (memory_pool.cc:40)": the call's arguments say nothing to who reads a log.
std::string Where(std::string_view operation, std::string_view file, int line) {
  return std::string(operation.substr(0, operation.find('('))) + " (" +
         std::string(file.substr(file.rfind('/') + 1)) + ":" + std::to_string(line) + ")";
}

}  // namespace

void ThrowCudaError(cudaError_t error, const char* operation, const char* file, int line) {
  cudaGetLastError();  // it is told now, and not again by the next launch
  const std::string message =
      Where(operation, file, line) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(message);
  throw DeviceLost(message);
}

void ThrowCublasError(cublasStatus_t status, const char* operation, const char* file, int line) {
  ThrowLibraryError(cublasLtGetStatusName(status), status == CUBLAS_STATUS_ALLOC_FAILED, operation, file,
                    line);
}

void ThrowLibraryError(const char* error, bool out_of_memory, const char* operation, const char* file,
                       int line) {
  const std::string message = Where(operation, file, line) + ": " + error;
  if (out_of_memory) throw OutOfMemory(message);
  throw DeviceLost(message);
}

}  // namespace lockstep::trainer::cuda
