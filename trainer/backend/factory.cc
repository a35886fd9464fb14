#include "trainer/backend/factory.h"

#include "trainer/backend/cpu/cpu_backend.h"
#include "trainer/error.h"

namespace lockstep::trainer {

std::unique_ptr<Backend> MakeBackend(const BackendOptions& options) {
  if (options.device == "CPU") return cpu::MakeCpuBackend(options.threads);
  throw Unsupported("device " + options.device + ": this build has a backend for CPU only");
}

}  // namespace lockstep::trainer
