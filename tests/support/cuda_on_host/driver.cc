#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string_view>

#include "tests/support/cuda_on_host/state.h"

// The functions of the driver that the runtime has no counterpart of, by name.
namespace lockstep::cuda_on_host {
namespace {

CUresult AddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer) {
  const MemoryPlace place = FindAllocated(reinterpret_cast<const void*>(pointer));
  if (place.kind == MemoryKind::kNone) return CUDA_ERROR_NOT_FOUND;
  *base = reinterpret_cast<CUdeviceptr>(place.base);
  *bytes = place.bytes;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace lockstep::cuda_on_host

using namespace lockstep::cuda_on_host;

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                             unsigned long long, cudaDriverEntryPointQueryResult* found) {
  if (const cudaError_t error = Usable()) return Return(error);
  *function = nullptr;
  *found = cudaDriverEntryPointSymbolNotFound;
  // Before 3.2 it had other types.
  if (std::string_view(name) == "cuMemGetAddressRange" && version >= 3020) {
    *function = reinterpret_cast<void*>(&AddressRange);
    *found = cudaDriverEntryPointSuccess;
  }
  return cudaSuccess;
}
