#include "tests/support/cuda_on_host/launch.h"

#include <memory>
#include <vector>

#include "tests/support/cuda_on_host/state.h"

namespace lockstep::cuda_on_host {
namespace {

constexpr unsigned kMostThreads = 1024;
constexpr size_t kMostShared = size_t{48} << 10;  // without asking for more

bool Possible(const Grid& grid) {
  const dim3& threads = grid.threads;
  const dim3& blocks = grid.blocks;
  return threads.x > 0 && threads.y > 0 && threads.z > 0 && threads.x <= kMostThreads &&
         threads.y <= kMostThreads && threads.z <= 64 && threads.x * threads.y * threads.z <= kMostThreads &&
         blocks.x > 0 && blocks.y > 0 && blocks.z > 0 && blocks.x <= 0x7fffffffu && blocks.y <= 65535 &&
         blocks.z <= 65535;
}

}  // namespace

void EnqueueKernel(const char* name, const Grid& grid, cudaStream_t stream,
                   std::span<const void* const> pointers, std::function<void()> thread_body) {
  if (!Possible(grid)) {
    Return(cudaErrorInvalidConfiguration);
    return;
  }
  if (grid.dynamic_shared > kMostShared) {
    Return(cudaErrorInvalidValue);
    return;
  }
  int device = 0;
  if (cudaStreamGetDevice(stream, &device) != cudaSuccess) return;
  if (device != CurrentDevice()) {  // as CUDA has it, for kernels only
    Return(cudaErrorInvalidResourceHandle);
    return;
  }
  Return(Enqueue(stream, name,
                 [kernel = std::string(name), grid, body = std::move(thread_body),
                  arguments = std::vector<const void*>(pointers.begin(), pointers.end())] {
                   for (size_t i = 0; i < arguments.size(); ++i) {
                     if (arguments[i] == nullptr || Find(arguments[i]).kind != MemoryKind::kNone) continue;
                     Fault(cudaErrorIllegalAddress, "kernel " + kernel + ": pointer argument " +
                                                        std::to_string(i) +
                                                        " is not, or no longer, the device's memory");
                     return;
                   }
                   RunGrid(kernel, grid, body);
                 }));
}

}  // namespace lockstep::cuda_on_host
