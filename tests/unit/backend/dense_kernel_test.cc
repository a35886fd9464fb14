#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "tests/unit/backend/random_values.h"
#include "trainer/backend/factory.h"

namespace lockstep::trainer {
namespace {

struct Case {
  DataType type;
  double tolerance;  // relative to the magnitude of the sums
  int64_t n, inputs, units;
  bool bias, relu;
};

class DenseKernelTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    backend_ = MakeBackend({.threads = 1});
    if (const Support support = backend_->Supports(Op::kDense, GetParam().type); !support.supported) {
      GTEST_SKIP() << support.reason;
    }
  }
  std::unique_ptr<Backend> backend_;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto& [type, tolerance] : {std::pair{DataType::kFloat32, 1e-5}, {DataType::kBFloat16, 1e-2}}) {
    for (const auto& [n, inputs, units] :
         {std::tuple{1, 1, 1}, {5, 3, 2}, {80, 1, 1}, {32, 784, 256}, {33, 256, 10}, {16, 100, 77}}) {
      cases.push_back({type, tolerance, n, inputs, units, true, true});
      cases.push_back({type, tolerance, n, inputs, units, false, false});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Shapes, DenseKernelTest, testing::ValuesIn(Cases()), [](const auto& info) {
  const Case& c = info.param;
  return std::string(DataTypeName(c.type)) + "_" + std::to_string(c.n) + "x" + std::to_string(c.inputs) +
         "x" + std::to_string(c.units) + (c.relu ? "_ReluBias" : "_Linear");
});

TEST_P(DenseKernelTest, AgreesWithDoubles) {
  const Case& c = GetParam();
  const auto n = static_cast<size_t>(c.n), inputs = static_cast<size_t>(c.inputs),
             units = static_cast<size_t>(c.units);
  const auto kernel = backend_->MakeDense({.inputs = c.inputs,
                                           .units = c.units,
                                           .bias = c.bias,
                                           .relu = c.relu,
                                           .input_gradient = true,
                                           .input = c.type,
                                           .output = c.type,
                                           .max_batch = c.n});
  ASSERT_GE(kernel->stored_size(), c.inputs * c.units);
  const TypedValues x(c.type, RandomValues(n * inputs, 1));
  const TypedValues w(c.type, RandomValues(inputs * units, 2));
  const std::vector<float> b = RandomValues(units, 3);
  TypedValues dy(c.type, RandomValues(n * units, 4));
  const std::vector<float> dy_before = dy.values;

  std::vector<float> stored(static_cast<size_t>(kernel->stored_size()));
  std::vector<float> dstored(stored.size(), NAN), db(units, NAN);
  kernel->FromCanonical(w.values.data(), stored.data());
  kernel->Bind({.kernel = stored.data(),
                .bias = c.bias ? b.data() : nullptr,
                .dkernel = dstored.data(),
                .dbias = c.bias ? db.data() : nullptr});
  kernel->KernelChanged(0, kernel->stored_size());

  TypedValues y(c.type, std::vector<float>(n * units)), dx(c.type, std::vector<float>(n * inputs));
  kernel->Forward(c.n, x.data(), y.data());
  const double rounding = c.tolerance;
  for (size_t r = 0; r < n; ++r) {
    for (size_t j = 0; j < units; ++j) {
      double sum = c.bias ? b[j] : 0.0, magnitude = 1;
      for (size_t i = 0; i < inputs; ++i) {
        sum += static_cast<double>(x.values[r * inputs + i]) * w.values[i * units + j];
        magnitude += std::abs(static_cast<double>(x.values[r * inputs + i]) * w.values[i * units + j]);
      }
      const double wanted = c.relu ? std::max(sum, 0.0) : sum;
      ASSERT_NEAR(Element(y.data(), c.type, r * units + j), wanted, rounding * magnitude) << r << " " << j;
    }
  }

  // The backward pass is a function of the kernel's own y.
  const auto passes = [&](size_t at) { return !c.relu || Element(y.data(), c.type, at) > 0; };
  const auto gradient = [&](size_t at) { return passes(at) ? static_cast<double>(dy_before[at]) : 0.0; };
  kernel->Backward(c.n, x.data(), y.data(), dy.data(), dx.data());
  std::vector<float> dw(inputs * units);
  kernel->ToCanonical(dstored.data(), dw.data());
  for (size_t i = 0; i < inputs; ++i) {
    for (size_t j = 0; j < units; ++j) {
      double sum = 0, magnitude = 1;
      for (size_t r = 0; r < n; ++r) {
        sum += x.values[r * inputs + i] * gradient(r * units + j);
        magnitude += std::abs(x.values[r * inputs + i] * gradient(r * units + j));
      }
      ASSERT_NEAR(dw[i * units + j], sum, 1e-5 * magnitude) << i << " " << j;  // float32 sums in every case
    }
  }
  for (size_t j = 0; c.bias && j < units; ++j) {
    double sum = 0;
    for (size_t r = 0; r < n; ++r) sum += gradient(r * units + j);
    ASSERT_NEAR(db[j], sum, 1e-5 * (1 + static_cast<double>(n)));
  }
  for (size_t r = 0; r < n; ++r) {
    for (size_t i = 0; i < inputs; ++i) {
      double sum = 0, magnitude = 1;
      for (size_t j = 0; j < units; ++j) {
        sum += gradient(r * units + j) * w.values[i * units + j];
        magnitude += std::abs(gradient(r * units + j) * w.values[i * units + j]);
      }
      ASSERT_NEAR(Element(dx.data(), c.type, r * inputs + i), sum, rounding * magnitude);
    }
  }
}

TEST_P(DenseKernelTest, CanonicalOrderComesBackExactly) {
  const Case& c = GetParam();
  const auto kernel =
      backend_->MakeDense({.inputs = c.inputs, .units = c.units, .input = c.type, .max_batch = c.n});
  const auto canonical = RandomValues(static_cast<size_t>(c.inputs * c.units), 8);
  std::vector<float> stored(static_cast<size_t>(kernel->stored_size())), back(canonical.size());
  kernel->FromCanonical(canonical.data(), stored.data());
  kernel->ToCanonical(stored.data(), back.data());
  EXPECT_EQ(back, canonical);
}

// A rank whose piece of the kernel alone changed refreshes that piece alone.
TEST_P(DenseKernelTest, PartsOfTheKernelMayChange) {
  const Case& c = GetParam();
  const auto kernel = backend_->MakeDense({.inputs = c.inputs,
                                           .units = c.units,
                                           .bias = false,
                                           .input = c.type,
                                           .output = DataType::kFloat32,
                                           .max_batch = c.n});
  const int64_t size = kernel->stored_size();
  const TypedValues x(c.type, RandomValues(static_cast<size_t>(c.n * c.inputs), 1));
  std::vector<float> stored = RandomValues(static_cast<size_t>(size), 2), dstored(stored.size());
  const auto outputs = [&] {
    std::vector<float> y(static_cast<size_t>(c.n * c.units));
    kernel->Forward(c.n, x.data(), y.data());
    return y;
  };
  kernel->Bind({.kernel = stored.data(), .dkernel = dstored.data()});
  kernel->KernelChanged(0, size);
  const auto first = outputs();
  for (float& value : stored) value *= -2;
  for (int64_t begin = 0; begin < size; begin += size / 3 + 1) {
    kernel->KernelChanged(begin, std::min(begin + size / 3 + 1, size));
  }
  auto wanted = first;
  for (float& value : wanted) value *= -2;  // exact: powers of two
  EXPECT_EQ(outputs(), wanted);
}

}  // namespace
}  // namespace lockstep::trainer
