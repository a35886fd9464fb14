#include "trainer/matmul_demo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

using ::testing::HasSubstr;

std::string OutputOf(const std::vector<std::string>& arguments) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(MatmulDemo(arguments), 0);
  return ::testing::internal::GetCapturedStdout();
}

TEST(MatmulDemoTest, PrintsTheGuidesProduct) {
  EXPECT_EQ(OutputOf({"--device", "/cpu:0"}), "[[22 28] [49 64]]\n");
  EXPECT_EQ(OutputOf({"--device", "CPU:0", "--type", "Int32"}), "[[22 28] [49 64]]\n");
}

TEST(MatmulDemoTest, SumsWhatSeveralDevicesMade) {
  EXPECT_EQ(OutputOf({"--device", "CPU:0", "--device", "/device:CPU:0"}), "[[44 56] [98 128]]\n");
}

TEST(MatmulDemoTest, LogsWhereEachOperationRan) {
  const std::string output = OutputOf({"--device", "CPU:0", "--log-placement"});
  EXPECT_THAT(output, HasSubstr("MatMul(Float32): CPU:0"));
  EXPECT_THAT(output, HasSubstr("Add(Float32): CPU:0"));
}

TEST(MatmulDemoTest, ADeviceThatIsNotThereIsAnErrorOrTheCpu) {
  ::setenv("LOCKSTEP_CUDA_PLUGIN", "/nonexistent/liblockstep-cuda.so", 1);
  EXPECT_THROW(MatmulDemo({"--device", "/gpu:2"}), Unsupported);
  EXPECT_EQ(OutputOf({"--device", "/gpu:2", "--soft-placement"}), "[[22 28] [49 64]]\n");
  ::unsetenv("LOCKSTEP_CUDA_PLUGIN");
}

TEST(MatmulDemoTest, WrongArgumentsAreNamed) {
  EXPECT_THAT(
      [] {
        MatmulDemo({"--type", "Float64"});
      },
      ::testing::ThrowsMessage<Error>(HasSubstr("\"Float64\"; Float32 or Int32")));
  EXPECT_THAT([] { MatmulDemo({"--device"}); }, ::testing::ThrowsMessage<Error>(HasSubstr("needs a value")));
  EXPECT_THAT([] { MatmulDemo({"-x"}); }, ::testing::ThrowsMessage<Error>(HasSubstr("\"-x\"")));
}

}  // namespace
}  // namespace lockstep::trainer
