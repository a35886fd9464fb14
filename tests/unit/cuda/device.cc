#include "tests/unit/cuda/device.h"

#include <cstdlib>

#include "tests/paths.h"

namespace lockstep::trainer {
namespace {

#ifdef LOCKSTEP_TEST_ON_GPU
constexpr const char* kLibrary = LOCKSTEP_BIN_DIR "/liblockstep-cuda.so";
#else
constexpr const char* kLibrary = LOCKSTEP_BIN_DIR "/liblockstep-cuda-on-host.so";
#endif

}  // namespace

void CudaDeviceTest::SetUp() {
  ::setenv("LOCKSTEP_CUDA_PLUGIN", kLibrary, 1);
  ::setenv("CUDA_ON_HOST_DEVICES", "2", 1);
  ::setenv("CUDA_ON_HOST_MEMORY", "1073741824", 1);
  std::string why;
  plugin_ = CudaPlugin::Open(&why);
  ASSERT_TRUE(plugin_) << why;
  controls_ = static_cast<const cuda_on_host::Controls*>(plugin_->Symbol(cuda_on_host::kControls));
  devices_ = entry().device_count(&why);
  if (devices_ == 0) GTEST_SKIP() << "no GPU: " << why;
}

}  // namespace lockstep::trainer
