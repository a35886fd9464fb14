#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "tests/paths.h"
#include "tests/support/temporary_folder.h"
#include "trainer/backend/cuda_plugin.h"
#include "trainer/backend/factory.h"
#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CudaPluginTest : public ::testing::Test {
 protected:
  ~CudaPluginTest() override { ::unsetenv("LOCKSTEP_CUDA_PLUGIN"); }
  static std::optional<CudaPlugin> Open(const std::string& path, std::string* why) {
    ::setenv("LOCKSTEP_CUDA_PLUGIN", path.c_str(), 1);
    return CudaPlugin::Open(why);
  }
};

TEST_F(CudaPluginTest, AMissingFileIsNamed) {
  std::string why;
  EXPECT_FALSE(Open("/nonexistent/liblockstep-cuda.so", &why));
  EXPECT_THAT(why, HasSubstr("/nonexistent/liblockstep-cuda.so"));
}

TEST_F(CudaPluginTest, WhatIsNoLibraryIsNamed) {
  const lockstep::testing::TemporaryFolder folder;
  const std::string path = folder.Write("liblockstep-cuda.so", "this is text");
  std::string why;
  EXPECT_FALSE(Open(path, &why));
  EXPECT_THAT(why, AllOf(HasSubstr(path), HasSubstr("cannot be opened")));
}

TEST_F(CudaPluginTest, AnotherLibraryIsRefused) {
  std::string why;
  EXPECT_FALSE(Open(FAKE_NOT_OURS, &why));
  EXPECT_THAT(why, AllOf(HasSubstr(FAKE_NOT_OURS), HasSubstr("no CUDA library of this program")));
}

TEST_F(CudaPluginTest, ALibraryOfAnotherVersionIsRefused) {
  std::string why;
  EXPECT_FALSE(Open(FAKE_OTHER_VERSION, &why));
  EXPECT_THAT(why, AllOf(HasSubstr("0.0.1"), HasSubstr(kCudaBuild)));
}

TEST_F(CudaPluginTest, AGpuThatCannotBeHadIsRefusedWithTheReason) {
  ::setenv("LOCKSTEP_CUDA_PLUGIN", "/nonexistent/library.so", 1);
  try {
    MakeBackend({.device = "GPU"});
    FAIL();
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("GPU 0"), HasSubstr("CPU"), HasSubstr("/nonexistent/library.so")));
  }
}

#ifdef LOCKSTEP_TEST_CUDA_ON_HOST
constexpr const char* kOnHost = LOCKSTEP_BIN_DIR "/liblockstep-cuda-on-host.so";

TEST_F(CudaPluginTest, ItsExceptionsAreTheProgramsOwn) {
  std::string why;
  const auto plugin = Open(kOnHost, &why);
  ASSERT_TRUE(plugin) << why;
  ASSERT_EQ(plugin->entry().device_count(&why), 1);
  try {
    plugin->entry().make_backend({.ordinal = 7});
    FAIL();
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("GPU 7"), HasSubstr("GPU 0 (")));
    EXPECT_EQ(error.kind(), "Unsupported");
  }
  try {
    const auto device = plugin->entry().make_backend({.policy = MemoryPolicy::kLimit, .limit = 64 << 20});
    device->allocator().Allocate(size_t{1} << 30);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), contract::kExitOutOfMemory);
  }
}

TEST_F(CudaPluginTest, TheFactoryMakesADevice) {
  ::setenv("LOCKSTEP_CUDA_PLUGIN", kOnHost, 1);
  const auto backend = MakeBackend({.device = "GPU"});
  EXPECT_EQ(backend->name(), "GPU:0");
  EXPECT_NE(dynamic_cast<DeviceBackend*>(backend.get()), nullptr);
}

TEST_F(CudaPluginTest, WhatIsAbsentIsNull) {
  std::string why;
  const auto plugin = Open(kOnHost, &why);
  ASSERT_TRUE(plugin) << why;
  EXPECT_EQ(plugin->path(), kOnHost);
  EXPECT_EQ(plugin->Symbol("lockstep_no_such_thing"), nullptr);
  EXPECT_EQ(plugin->Symbol("cudaMalloc"), nullptr);  // only its entries are shown
}

// In a process of its own: devices are counted once.
TEST_F(CudaPluginTest, NoDeviceIsReportedWithTheReason) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::string why;
        const auto plugin = Open(kOnHost, &why);
        const bool none = plugin && plugin->entry().device_count(&why) == 0;
        std::exit(none && why.find("cudaErrorNoDevice") != std::string::npos ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}
#endif

#ifdef LOCKSTEP_TEST_CUDA
constexpr const char* kReal = LOCKSTEP_BIN_DIR "/liblockstep-cuda.so";

// With a driver or without one.
TEST_F(CudaPluginTest, TheRealLibraryOpensAndSaysWhatThereIs) {
  std::string why;
  const auto plugin = Open(kReal, &why);
  ASSERT_TRUE(plugin) << why;
  const int devices = plugin->entry().device_count(&why);
  if (devices > 0) GTEST_SKIP() << "here are " << devices << " devices, which the gpu tests use";
  EXPECT_THAT(why, HasSubstr("cudaError"));
  if (!std::filesystem::exists("/proc/driver/nvidia")) {
    EXPECT_THAT(why, HasSubstr("there is no NVIDIA driver"));
  }
  // And again: it is a state, not an accident.
  EXPECT_EQ(plugin->entry().device_count(&why), 0);
  EXPECT_THROW(MakeBackend({.device = "GPU"}), Unsupported);
}

TEST_F(CudaPluginTest, TheRealLibraryDoesNotNeedTheDriver) {
  const std::string command = "readelf -d " + std::string(kReal) + " | grep -q 'NEEDED.*libcuda.so'";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
}
#endif

}  // namespace
}  // namespace lockstep::trainer
