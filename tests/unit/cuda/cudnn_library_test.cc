#include "trainer/backend/cuda/cudnn_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

// The real cuDNN 9, which opens without a driver. (What it computes needs a GPU.)
namespace lockstep::trainer::cuda {
namespace {

TEST(CudnnLibraryTest, HasEveryFunctionThatIsUsed) {
  std::string why;
  const auto cudnn = OpenCudnn(&why);
  ASSERT_TRUE(cudnn.has_value()) << why;
  EXPECT_EQ(cudnn->cudnnGetVersion() / 10000, size_t{CUDNN_MAJOR});
  EXPECT_STREQ(cudnn->cudnnGetErrorString(CUDNN_STATUS_BAD_PARAM), "CUDNN_STATUS_BAD_PARAM");
}

}  // namespace
}  // namespace lockstep::trainer::cuda
