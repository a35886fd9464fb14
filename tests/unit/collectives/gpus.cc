#include "tests/unit/collectives/gpus.h"

#include <cstdlib>
#include <filesystem>

namespace lockstep::testing {

using namespace trainer;  // NOLINT(google-build-using-namespace)

namespace {

Gpus Open() {
#ifdef LOCKSTEP_TEST_ON_GPU
  const char* library = "liblockstep-cuda.so";
#else
  const char* library = "liblockstep-cuda-on-host.so";
  ::setenv("CUDA_ON_HOST_DEVICES", "4", 1);
  ::setenv("CUDA_ON_HOST_MEMORY", "268435456", 1);
#endif
  const auto path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / library;
  ::setenv("LOCKSTEP_CUDA_PLUGIN", path.c_str(), 1);
  Gpus gpus;
  const auto plugin = CudaPlugin::Open(&gpus.why);
  if (!plugin) return gpus;
  gpus.entry = &plugin->entry();
  gpus.communicators =
      static_cast<const collectives::CudaCommunicators*>(plugin->Symbol(collectives::kCudaCommunicators));
  return gpus;
}

}  // namespace

const Gpus& AllGpus() {
  static const Gpus gpus = Open();
  return gpus;
}

std::string WhyNotSoMany(int gpus) {
  if (AllGpus().entry == nullptr) return AllGpus().why;
  std::string why;
  const int count = AllGpus().entry->device_count(&why);
  if (count >= gpus) return "";
  return count == 0 ? why
                    : "there are " + std::to_string(count) + " GPUs, and it takes " + std::to_string(gpus);
}

}  // namespace lockstep::testing
