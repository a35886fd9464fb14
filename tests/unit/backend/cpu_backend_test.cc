#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/backend/factory.h"
#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

TEST(CpuBackendTest, DoesEverythingInFloat32) {
  const auto backend = MakeBackend({.threads = 1});
  for (const Op op : {Op::kDense, Op::kSoftmaxCrossEntropy, Op::kMeanSquaredError, Op::kSgd, Op::kAdam}) {
    const Support support = backend->Supports(op, DataType::kFloat32);
    EXPECT_TRUE(support.supported) << OpName(op);
    EXPECT_TRUE(support.native);
  }
}

TEST(CpuBackendTest, SaysWhyItCannot) {
  const auto backend = MakeBackend({.threads = 1});
  const Support integers = backend->Supports(Op::kDense, DataType::kInt32);
  EXPECT_FALSE(integers.supported);
  EXPECT_THAT(integers.reason, testing::HasSubstr("Int32"));
  EXPECT_FALSE(backend->Supports(Op::kAdam, DataType::kBFloat16).supported);
  const Support half = backend->Supports(Op::kDense, DataType::kBFloat16);
  EXPECT_EQ(half.reason.empty(), half.supported && half.native);
}

TEST(CpuBackendTest, RefusesAKernelItLacksByName) {
  const auto backend = MakeBackend({.threads = 1});
  try {
    backend->MakeDense({.inputs = 2, .units = 2, .input = DataType::kInt32, .max_batch = 1});
    FAIL();
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("Dense"), testing::HasSubstr("Int32"),
                                             testing::HasSubstr("CPU")));
  }
}

TEST(CpuBackendTest, DescribesItself) {
  const auto backend = MakeBackend({.threads = 1});
  EXPECT_EQ(backend->name(), "CPU");
  EXPECT_THAT(backend->description(),
              testing::AllOf(testing::HasSubstr("oneDNN"), testing::HasSubstr("1 thread")));
}

TEST(MakeBackendTest, UnknownDeviceIsRefusedByName) {
  try {
    MakeBackend({.device = "GPU"});
    FAIL();
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("GPU"), testing::HasSubstr("CPU")));
  }
}

}  // namespace
}  // namespace lockstep::trainer
