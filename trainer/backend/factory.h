#pragma once

#include <memory>
#include <string>

#include "trainer/backend/backend.h"
#include "trainer/backend/cuda_plugin.h"

namespace lockstep::trainer {

struct BackendOptions {
  std::string device = "CPU";  // the kind: "CPU" or "GPU"
  int threads = 0;             // CPU: of this process; 0 as OMP_NUM_THREADS says, else 1
  DeviceOptions gpu;           // GPU: which one, and how much of its memory
};

// The backend for a device; for "GPU" it is a DeviceBackend. Throws Unsupported, naming the device and the
// ones there are, or why there is none.
std::unique_ptr<Backend> MakeBackend(const BackendOptions& options);

}  // namespace lockstep::trainer
