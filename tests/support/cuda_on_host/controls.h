#pragma once

#include <cstdint>

namespace lockstep::cuda_on_host {

// What a test can make happen in liblockstep-cuda-on-host.so, which exports it under kControls. (Free of
// CUDA's headers.)
struct Controls {
  // The device breaks, as if a kernel had failed: every call returns this error from now on.
  void (*fault)(int cuda_error);
  // The next `count` allocations of device memory fail, whatever is free.
  void (*refuse_allocations)(int count);
  // Of device memory, all kinds, in this process.
  int64_t (*allocated_bytes)();
  // Streams stop in front of their next piece of work, until they are let go on.
  void (*hold)(bool held);
};
inline constexpr const char* kControls = "lockstep_cuda_on_host_controls";

}  // namespace lockstep::cuda_on_host
