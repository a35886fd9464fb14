#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/backend/cuda/cudnn_library.h"

// A program that the dynamic linker finds no cuDNN for.
namespace lockstep::trainer::cuda {
namespace {

TEST(CudnnMissingTest, SaysWhatIsMissingAndWhereItIs) {
  std::string why;
  if (OpenCudnn(&why)) GTEST_SKIP() << "this system has a cuDNN of its own";
  EXPECT_THAT(why, testing::HasSubstr("convolutions need cuDNN 9"));
  EXPECT_THAT(why, testing::HasSubstr("libcudnn.so.9"));
  EXPECT_THAT(why, testing::HasSubstr("nvidia-cudnn-cu13"));
}

}  // namespace
}  // namespace lockstep::trainer::cuda
