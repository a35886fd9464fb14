#include "trainer/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "trainer/error.h"

// Without a GPU: no CUDA library is at the path that the environment names.
namespace lockstep::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DevicesTest : public ::testing::Test {
 protected:
  DevicesTest() { ::setenv("LOCKSTEP_CUDA_PLUGIN", "/nonexistent/liblockstep-cuda.so", 1); }
  ~DevicesTest() override { ::unsetenv("LOCKSTEP_CUDA_PLUGIN"); }
};

TEST_F(DevicesTest, ReadsTensorFlowsNamesAndOpensADeviceOnce) {
  Devices devices({});
  Backend& cpu = devices.At("/job:worker/replica:0/task:0/device:CPU:0");
  EXPECT_EQ(&devices.At("/cpu:0"), &cpu);
  EXPECT_EQ(&devices.At("cpu"), &cpu);
  EXPECT_EQ(devices.NameOf(cpu), "CPU:0");
}

TEST_F(DevicesTest, AnUnknownDeviceIsNamedWithThoseThereAreAndTheReason) {
  Devices devices({});
  EXPECT_THAT([&] { devices.At("/gpu:1"); },
              ::testing::ThrowsMessage<Unsupported>(AllOf(HasSubstr("GPU:1 is not there"), HasSubstr("CPU:0"),
                                                          HasSubstr("/nonexistent/liblockstep-cuda.so"))));
  EXPECT_THAT([&] { devices.At("CPU:1"); },
              ::testing::ThrowsMessage<Unsupported>(HasSubstr("CPU:1 is not there")));
  EXPECT_THAT([&] { devices.At("TPU:0"); },
              ::testing::ThrowsMessage<Unsupported>(HasSubstr("TPU:0 is not there")));
  EXPECT_THAT([&] { devices.At("gpu one"); },
              ::testing::ThrowsMessage<Unsupported>(HasSubstr("\"gpu one\" is not")));
}

TEST_F(DevicesTest, SoftPlacementTakesTheCpuAndSaysSo) {
  Devices devices({.soft_placement = true});
  ::testing::internal::CaptureStderr();
  Backend& backend = devices.At("GPU:0");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("GPU:0"), HasSubstr("the CPU is used")));
  EXPECT_EQ(&backend, &devices.At("CPU:0"));
}

TEST_F(DevicesTest, AnOperationWithoutAKernelIsNamedWithTypeAndDevice) {
  Devices devices({});
  EXPECT_THAT([&] { devices.For(Op::kDense, DataType::kInt32, "CPU:0"); },
              ::testing::ThrowsMessage<Unsupported>(
                  AllOf(HasSubstr("Dense"), HasSubstr("Int32"), HasSubstr("CPU:0"))));
  EXPECT_NO_THROW(devices.For(Op::kMatMul, DataType::kInt32, "CPU:0"));
}

}  // namespace
}  // namespace lockstep::trainer
