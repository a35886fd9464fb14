#include <cuda_runtime_api.h>

#include <string>

#include "trainer/backend/cuda/cuda_backend.h"
#include "trainer/backend/cuda_plugin.h"

namespace lockstep::trainer::cuda {
namespace {

int DeviceCount(std::string* why) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  cudaGetLastError();  // it is no failure of a later call
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (error == cudaSuccess) {
    *why = "CUDA sees no device";
  } else if (error == cudaErrorInsufficientDriver && driver == 0) {
    *why = "there is no NVIDIA driver (cudaErrorInsufficientDriver)";
  } else {
    *why = std::string("CUDA: ") + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")";
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::trainer::cuda

// kCudaEntry.
extern "C" __attribute__((visibility("default"))) const lockstep::trainer::CudaEntry lockstep_cuda_entry;
const lockstep::trainer::CudaEntry lockstep_cuda_entry{
    .build = lockstep::trainer::kCudaBuild,
    .device_count = lockstep::trainer::cuda::DeviceCount,
    .make_backend = lockstep::trainer::cuda::MakeCudaBackend,
};
