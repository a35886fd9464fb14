#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/backend/test_backends.h"
#include "trainer/error.h"

// What every backend says about itself.
namespace lockstep::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr Op kOps[] = {Op::kDense, Op::kSoftmaxCrossEntropy, Op::kMeanSquaredError, Op::kSgd, Op::kAdam};

using BackendContractTest = BackendTest<AnyCase>;
INSTANTIATE_TEST_SUITE_P(Backends, BackendContractTest,
                         testing::Combine(testing::ValuesIn(TestBackends()), testing::Values(AnyCase())),
                         TestName<AnyCase>);

TEST_P(BackendContractTest, DoesEverythingInFloat32) {
  for (const Op op : kOps) {
    const Support support = backend().Supports(op, DataType::kFloat32);
    EXPECT_TRUE(support.supported) << OpName(op);
    EXPECT_TRUE(support.native);
  }
}

TEST_P(BackendContractTest, SaysWhyItCannot) {
  for (const Op op : kOps) {
    const Support integers = backend().Supports(op, DataType::kInt32);
    EXPECT_FALSE(integers.supported);
    EXPECT_THAT(integers.reason, HasSubstr("Int32"));
  }
  EXPECT_FALSE(backend().Supports(Op::kAdam, DataType::kBFloat16).supported);
  const Support half = backend().Supports(Op::kDense, DataType::kBFloat16);
  EXPECT_EQ(half.reason.empty(), half.supported && half.native);
}

TEST_P(BackendContractTest, RefusesAKernelItLacksByName) {
  const std::string device(backend().name());
  try {
    backend().MakeDense({.inputs = 2, .units = 2, .input = DataType::kInt32, .max_batch = 1});
    FAIL();
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("Dense"), HasSubstr("Int32"), HasSubstr(device)));
  }
}

// TensorFlow's guide puts an integer variable on a GPU, which has no kernel for it.
TEST_P(BackendContractTest, MultipliesWhatItSupportsAndNamesWhatItDoesNot) {
  // [[1 2 3] [4 5 6]] · [[1 2] [3 4] [5 6]]
  const OnBackend<float> a(backend(), {1, 2, 3, 4, 5, 6}), b(backend(), {1, 2, 3, 4, 5, 6}), c(backend(), 4);
  backend().MatMul(DataType::kFloat32, 2, 2, 3, a.data(), b.data(), c.data());
  EXPECT_THAT(c.Fetch(), testing::ElementsAre(22, 28, 49, 64));

  const OnBackend<int32_t> i(backend(), {1, 2, 3, 4}), product(backend(), 4);
  if (backend().Supports(Op::kMatMul, DataType::kInt32).supported) {
    backend().MatMul(DataType::kInt32, 2, 2, 2, i.data(), i.data(), product.data());
    EXPECT_THAT(product.Fetch(), testing::ElementsAre(7, 10, 15, 22));
    return;
  }
  try {
    backend().MatMul(DataType::kInt32, 2, 2, 2, i.data(), i.data(), product.data());
    FAIL();
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("MatMul"), HasSubstr("Int32"), HasSubstr("GPU")));
  }
}

}  // namespace
}  // namespace lockstep::trainer
