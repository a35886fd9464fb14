#include "tests/unit/backend/test_backends.h"

#include <cstdlib>
#include <filesystem>

#include "trainer/backend/factory.h"

namespace lockstep::trainer {

std::vector<TestBackend> TestBackends() {
#if defined(LOCKSTEP_TEST_ON_GPU)
  return {TestBackend::kCuda};
#elif defined(LOCKSTEP_TEST_CUDA_ON_HOST)
  return {TestBackend::kCpu, TestBackend::kCudaOnHost};
#else
  return {TestBackend::kCpu};
#endif
}

std::vector<TestBackend> TestDevices() {
  std::vector<TestBackend> devices = TestBackends();
  std::erase(devices, TestBackend::kCpu);
  return devices;
}

std::string TestBackendName(TestBackend backend) {
  switch (backend) {
    case TestBackend::kCpu:
      return "Cpu";
    case TestBackend::kCudaOnHost:
      return "CudaOnHost";
    case TestBackend::kCuda:
      return "Cuda";
  }
  return "?";
}

std::unique_ptr<Backend> MakeTestBackend(TestBackend backend, std::string* why) {
  if (backend == TestBackend::kCpu) return MakeBackend({.threads = 1});
  return MakeTestDevice(backend, {}, why);
}

std::unique_ptr<DeviceBackend> MakeTestDevice(TestBackend backend, const DeviceOptions& options,
                                              std::string* why) {
  const char* library = backend == TestBackend::kCuda ? "liblockstep-cuda.so" : "liblockstep-cuda-on-host.so";
  const auto path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / library;
  setenv("LOCKSTEP_CUDA_PLUGIN", path.c_str(), 1);
  const auto plugin = CudaPlugin::Open(why);
  if (!plugin || plugin->entry().device_count(why) == 0) return nullptr;
  return plugin->entry().make_backend(options);
}

}  // namespace lockstep::trainer
