#pragma once

#include <memory>
#include <string>

#include "trainer/backend/backend.h"

namespace lockstep::trainer {

struct BackendOptions {
  std::string device = "CPU";  // the kind: "CPU"
  int threads = 0;             // CPU: of this process; 0 as OMP_NUM_THREADS says, else 1
};

// The backend for a device. Throws Unsupported, naming the device and the ones there are.
std::unique_ptr<Backend> MakeBackend(const BackendOptions& options);

}  // namespace lockstep::trainer
