#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "tests/unit/backend/random_values.h"
#include "tests/unit/backend/test_backends.h"

namespace lockstep::trainer {
namespace {

struct Case {
  DataType type;
  bool tf32;
  double tolerance;  // relative to the magnitude of the sums
  int64_t n, inputs, units;
  bool bias, relu;
};

std::string NameOf(const Case& c) {
  return (c.tf32 ? "Tf32" : std::string(DataTypeName(c.type))) + "_" + std::to_string(c.n) + "x" +
         std::to_string(c.inputs) + "x" + std::to_string(c.units) + (c.relu ? "_ReluBias" : "_Linear");
}

class DenseKernelTest : public BackendTest<Case> {
 protected:
  void SetUp() override {
    BackendTest::SetUp();
    if (IsSkipped()) return;
    if (const Support support = backend().Supports(Op::kDense, test_case().type); !support.supported) {
      GTEST_SKIP() << support.reason;
    }
  }
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto& [type, tolerance] : {std::pair{DataType::kFloat32, 1e-5}, {DataType::kBFloat16, 1e-2}}) {
    for (const auto& [n, inputs, units] : {std::tuple{1, 1, 1},
                                           {5, 3, 2},
                                           {80, 1, 1},
                                           {32, 784, 256},
                                           {33, 256, 10},
                                           {16, 100, 77},
                                           {300, 40, 264}}) {
      cases.push_back({type, false, tolerance, n, inputs, units, true, true});
      cases.push_back({type, false, tolerance, n, inputs, units, false, false});
    }
  }
  cases.push_back({DataType::kFloat32, true, 2e-3, 32, 784, 256, true, true});
  cases.push_back({DataType::kFloat32, true, 2e-3, 16, 100, 77, false, false});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Backends, DenseKernelTest,
                         testing::Combine(testing::ValuesIn(TestBackends()), testing::ValuesIn(Cases())),
                         TestName<Case>);

// A kernel and its variables in the backend's memory.
struct BoundKernel {
  BoundKernel(Backend& backend, const DenseOptions& options, const std::vector<float>& canonical,
              const std::vector<float>& bias)
      : options(options),
        kernel(backend.MakeDense(options)),
        stored(static_cast<size_t>(kernel->stored_size())),
        w(backend, Stored(canonical)),
        b(backend, bias),
        dw(backend, std::vector<float>(stored.size(), NAN)),
        db(backend, std::vector<float>(bias.size(), NAN)) {
    kernel->Bind({.kernel = w.data(),
                  .bias = options.bias ? b.data() : nullptr,
                  .dkernel = dw.data(),
                  .dbias = options.bias ? db.data() : nullptr});
    kernel->KernelChanged(0, kernel->stored_size());
    if (options.bias) kernel->BiasChanged(0, options.units);
  }

  const std::vector<float>& Stored(const std::vector<float>& canonical) {
    kernel->FromCanonical(canonical.data(), stored.data());
    return stored;
  }
  std::vector<float> KernelGradient() const {
    std::vector<float> canonical(static_cast<size_t>(options.inputs * options.units));
    kernel->ToCanonical(dw.Fetch().data(), canonical.data());
    return canonical;
  }

  DenseOptions options;
  std::unique_ptr<ProductKernel> kernel;
  std::vector<float> stored;
  OnBackend<float> w, b, dw, db;
};

TEST_P(DenseKernelTest, AgreesWithDoubles) {
  const Case& c = test_case();
  const auto n = static_cast<size_t>(c.n), inputs = static_cast<size_t>(c.inputs),
             units = static_cast<size_t>(c.units);
  const TypedValues x(c.type, RandomValues(n * inputs, 1));
  const TypedValues w(c.type, RandomValues(inputs * units, 2));
  const std::vector<float> b = RandomValues(units, 3);
  const TypedValues dy(c.type, RandomValues(n * units, 4));
  const size_t size = SizeOf(c.type);

  BoundKernel layer(backend(),
                    {.inputs = c.inputs,
                     .units = c.units,
                     .bias = c.bias,
                     .relu = c.relu,
                     .input_gradient = true,
                     .input = c.type,
                     .output = c.type,
                     .tf32 = c.tf32,
                     .max_batch = c.n},
                    w.values, b);
  ASSERT_GE(layer.kernel->stored_size(), c.inputs * c.units);
  const OnBackend<unsigned char> x_there(backend(), x.bytes), dy_there(backend(), dy.bytes);
  const OnBackend<unsigned char> y_there(backend(), n * units * size), dx_there(backend(), n * inputs * size);
  layer.kernel->Forward(c.n, x_there.data(), y_there.data());
  const std::vector<unsigned char> y = y_there.Fetch();
  for (size_t r = 0; r < n; ++r) {
    for (size_t j = 0; j < units; ++j) {
      double sum = c.bias ? b[j] : 0.0, magnitude = 1;
      for (size_t i = 0; i < inputs; ++i) {
        const double term = static_cast<double>(x.values[r * inputs + i]) * w.values[i * units + j];
        sum += term;
        magnitude += std::abs(term);
      }
      const double wanted = c.relu ? std::max(sum, 0.0) : sum;
      ASSERT_NEAR(Element(y.data(), c.type, r * units + j), wanted, c.tolerance * magnitude) << r << " " << j;
    }
  }

  // The backward pass is a function of the kernel's own y.
  const auto gradient = [&](size_t at) {
    return !c.relu || Element(y.data(), c.type, at) > 0 ? static_cast<double>(dy.values[at]) : 0.0;
  };
  layer.kernel->Backward(c.n, x_there.data(), y_there.data(), dy_there.data(), dx_there.data());
  // Sums are in float32 in every case; TF32 rounds what is summed.
  const double of_sums = c.tf32 ? c.tolerance : 1e-5;
  const std::vector<float> dw = layer.KernelGradient();
  for (size_t i = 0; i < inputs; ++i) {
    for (size_t j = 0; j < units; ++j) {
      double sum = 0, magnitude = 1;
      for (size_t r = 0; r < n; ++r) {
        const double term = x.values[r * inputs + i] * gradient(r * units + j);
        sum += term;
        magnitude += std::abs(term);
      }
      ASSERT_NEAR(dw[i * units + j], sum, of_sums * magnitude) << i << " " << j;
    }
  }
  const std::vector<float> db = layer.db.Fetch();
  for (size_t j = 0; c.bias && j < units; ++j) {
    double sum = 0;
    for (size_t r = 0; r < n; ++r) sum += gradient(r * units + j);
    ASSERT_NEAR(db[j], sum, 1e-5 * (1 + static_cast<double>(n)));
  }
  const std::vector<unsigned char> dx = dx_there.Fetch();
  for (size_t r = 0; r < n; ++r) {
    for (size_t i = 0; i < inputs; ++i) {
      double sum = 0, magnitude = 1;
      for (size_t j = 0; j < units; ++j) {
        const double term = gradient(r * units + j) * w.values[i * units + j];
        sum += term;
        magnitude += std::abs(term);
      }
      ASSERT_NEAR(Element(dx.data(), c.type, r * inputs + i), sum, c.tolerance * magnitude);
    }
  }
}

TEST_P(DenseKernelTest, GivesTheSameBitsEachTime) {
  const Case& c = test_case();
  const auto n = static_cast<size_t>(c.n), inputs = static_cast<size_t>(c.inputs),
             units = static_cast<size_t>(c.units);
  BoundKernel layer(backend(),
                    {.inputs = c.inputs,
                     .units = c.units,
                     .bias = c.bias,
                     .relu = c.relu,
                     .input_gradient = false,
                     .input = c.type,
                     .output = c.type,
                     .tf32 = c.tf32,
                     .max_batch = c.n},
                    RandomValues(inputs * units, 2), RandomValues(units, 3));
  const OnBackend<unsigned char> x(backend(), TypedValues(c.type, RandomValues(n * inputs, 1)).bytes);
  const auto pass = [&] {
    const OnBackend<unsigned char> y(backend(), n * units * SizeOf(c.type));
    const OnBackend<unsigned char> dy(backend(), TypedValues(c.type, RandomValues(n * units, 4)).bytes);
    layer.kernel->Forward(c.n, x.data(), y.data());
    layer.kernel->Backward(c.n, x.data(), y.data(), dy.data(), nullptr);
    return std::tuple(y.Fetch(), layer.KernelGradient(), c.bias ? layer.db.Fetch() : std::vector<float>());
  };
  EXPECT_EQ(pass(), pass());
}

// A last layer's outputs are wider than its gradients.
TEST_P(DenseKernelTest, GradientsAreMaskedByWideOutputsToo) {
  const Case& c = test_case();
  const auto count = static_cast<size_t>(c.n * c.units);
  BoundKernel layer(backend(),
                    {.inputs = c.inputs,
                     .units = c.units,
                     .relu = true,
                     .input_gradient = false,
                     .input = c.type,
                     .output = DataType::kFloat32,
                     .max_batch = c.n},
                    RandomValues(static_cast<size_t>(c.inputs * c.units), 2),
                    RandomValues(static_cast<size_t>(c.units), 3));
  const OnBackend<unsigned char> x(
      backend(), TypedValues(c.type, RandomValues(static_cast<size_t>(c.n * c.inputs), 1)).bytes);
  const OnBackend<float> y(backend(), count);
  const TypedValues before(c.type, RandomValues(count, 4, 1, 2));
  const OnBackend<unsigned char> dy(backend(), before.bytes);
  layer.kernel->Forward(c.n, x.data(), y.data());
  layer.kernel->Backward(c.n, x.data(), y.data(), dy.data(), nullptr);
  const auto outputs = y.Fetch();
  const auto gradients = dy.Fetch();
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(Element(gradients.data(), c.type, i), outputs[i] > 0 ? before.values[i] : 0.0f) << i;
  }
}

TEST_P(DenseKernelTest, CanonicalOrderComesBackExactly) {
  const Case& c = test_case();
  const auto kernel =
      backend().MakeDense({.inputs = c.inputs, .units = c.units, .input = c.type, .max_batch = c.n});
  const auto canonical = RandomValues(static_cast<size_t>(c.inputs * c.units), 8);
  std::vector<float> stored(static_cast<size_t>(kernel->stored_size())), back(canonical.size());
  kernel->FromCanonical(canonical.data(), stored.data());
  kernel->ToCanonical(stored.data(), back.data());
  EXPECT_EQ(back, canonical);
}

// A rank whose piece of the kernel alone changed refreshes that piece alone.
TEST_P(DenseKernelTest, PartsOfTheKernelMayChange) {
  const Case& c = test_case();
  BoundKernel layer(backend(),
                    {.inputs = c.inputs,
                     .units = c.units,
                     .bias = false,
                     .input = c.type,
                     .output = DataType::kFloat32,
                     .tf32 = c.tf32,
                     .max_batch = c.n},
                    RandomValues(static_cast<size_t>(c.inputs * c.units), 2), {});
  const OnBackend<unsigned char> x(
      backend(), TypedValues(c.type, RandomValues(static_cast<size_t>(c.n * c.inputs), 1)).bytes);
  const auto outputs = [&] {
    const OnBackend<float> y(backend(), static_cast<size_t>(c.n * c.units));
    layer.kernel->Forward(c.n, x.data(), y.data());
    return y.Fetch();
  };
  const auto first = outputs();
  for (float& value : layer.stored) value *= -2;
  backend().Upload(layer.w.data(), layer.stored.data(), layer.stored.size() * sizeof(float));
  const int64_t size = layer.kernel->stored_size();
  for (int64_t begin = 0; begin < size; begin += size / 3 + 1) {
    layer.kernel->KernelChanged(begin, std::min(begin + size / 3 + 1, size));
  }
  auto wanted = first;
  for (float& value : wanted) value *= -2;  // exact: powers of two
  EXPECT_EQ(outputs(), wanted);
}

// Steps of several sizes alternate, as the last batch of an epoch does with the others.
TEST_P(DenseKernelTest, SmallerBatchesGiveTheSameRows) {
  const Case& c = test_case();
  const auto rows = static_cast<size_t>(c.n * c.inputs);
  BoundKernel layer(backend(),
                    {.inputs = c.inputs,
                     .units = c.units,
                     .bias = c.bias,
                     .relu = c.relu,
                     .input = c.type,
                     .output = DataType::kFloat32,
                     .max_batch = c.n},
                    RandomValues(static_cast<size_t>(c.inputs * c.units), 2),
                    RandomValues(static_cast<size_t>(c.units), 3));
  const OnBackend<unsigned char> x(backend(), TypedValues(c.type, RandomValues(rows, 1)).bytes);
  const OnBackend<float> y(backend(), static_cast<size_t>(c.n * c.units));
  layer.kernel->Forward(c.n, x.data(), y.data());
  const std::vector<float> all = y.Fetch();
  for (const int64_t n : {(c.n + 1) / 2, c.n, int64_t{1}}) {
    backend().Zero(y.data(), all.size() * sizeof(float));
    layer.kernel->Forward(n, x.data(), y.data());
    const std::vector<float> some = y.Fetch();
    for (size_t i = 0; i < all.size(); ++i) {
      const bool inside = i < static_cast<size_t>(n * c.units);
      ASSERT_NEAR(some[i], inside ? all[i] : 0.0f, 1e-4 * (1 + std::abs(all[i]))) << n << " " << i;
    }
  }
}

}  // namespace
}  // namespace lockstep::trainer
