#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/unit/backend/test_backends.h"
#include "trainer/error.h"

// A Tesla T4 has neither BFloat16 nor TF32. (What devices the stand-in has is settled at its first call, so
// that this runs in a process of its own.)
namespace lockstep::trainer {
namespace {

bool RefusesBFloat16AndTakesTf32AsFloat32() {
  std::string why;
  const auto device = MakeTestDevice(TestBackend::kCudaOnHost, {}, &why);
  if (device == nullptr || device->identity().capability != 75) return false;
  const Support narrow = device->Supports(Op::kDense, DataType::kBFloat16);
  if (narrow.supported || narrow.reason.find("7.5") == std::string::npos) return false;

  const auto kernel =
      device->MakeDense({.inputs = 1, .units = 1, .bias = false, .tf32 = true, .max_batch = 1});
  constexpr float kFine = 1.0f + 1.0f / 4096;  // more than TF32 can tell from 1
  const OnBackend<float> x(*device, std::vector{kFine}), w(*device, std::vector{1.0f}), y(*device, 1);
  kernel->Bind({.kernel = w.data()});
  kernel->Forward(1, x.data(), y.data());
  return y.Fetch()[0] == kFine;
}

TEST(OldGpuDeathTest, RefusesBFloat16AndTakesTf32AsFloat32) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("CUDA_ON_HOST_CAPABILITY", "75", 1);
  EXPECT_EXIT(std::exit(RefusesBFloat16AndTakesTf32AsFloat32() ? 0 : 1), testing::ExitedWithCode(0), "");
  unsetenv("CUDA_ON_HOST_CAPABILITY");
}

// Everything but convolutions is there without cuDNN.
bool RefusesConvolutionsAlone() {
  std::string why;
  const auto device = MakeTestDevice(TestBackend::kCudaOnHost, {}, &why);
  if (device == nullptr || !device->Supports(Op::kPool, DataType::kFloat32).supported) return false;
  const Support support = device->Supports(Op::kConv2D, DataType::kFloat32);
  if (support.supported || support.reason.find("cuDNN 9") == std::string::npos) return false;
  try {
    device->MakeConv2D({});
  } catch (const Unsupported& error) {
    return std::string(error.what()).find("Conv2D in Float32 on GPU:0: convolutions need cuDNN 9") !=
           std::string::npos;
  }
  return false;
}

TEST(WithoutCudnnDeathTest, RefusesConvolutionsAlone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("CUDA_ON_HOST_CUDNN", "missing", 1);
  EXPECT_EXIT(std::exit(RefusesConvolutionsAlone() ? 0 : 1), testing::ExitedWithCode(0), "");
  unsetenv("CUDA_ON_HOST_CUDNN");
}

}  // namespace
}  // namespace lockstep::trainer
