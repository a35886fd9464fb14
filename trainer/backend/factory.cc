#include "trainer/backend/factory.h"

#include <optional>

#include "trainer/backend/cpu/cpu_backend.h"
#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

std::unique_ptr<Backend> MakeGpuBackend(const DeviceOptions& options) {
  std::string why;
  const std::optional<CudaPlugin> plugin = CudaPlugin::Open(&why);
  if (!plugin || plugin->entry().device_count(&why) == 0) {
    throw Unsupported("device GPU " + std::to_string(options.ordinal) +
                      " is not there; there is the CPU only: " + why);
  }
  return plugin->entry().make_backend(options);
}

}  // namespace

std::unique_ptr<Backend> MakeBackend(const BackendOptions& options) {
  if (options.device == "CPU") return cpu::MakeCpuBackend(options.threads);
  if (options.device == "GPU") return MakeGpuBackend(options.gpu);
  throw Unsupported("device " + options.device + ": there are backends for CPU and GPU");
}

}  // namespace lockstep::trainer
