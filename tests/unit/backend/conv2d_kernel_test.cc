#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/unit/backend/random_values.h"
#include "tests/unit/backend/test_backends.h"

namespace lockstep::trainer {
namespace {

struct Case {
  ImageShape input;
  int64_t filters;
  Window window;
  int64_t pad_bottom, pad_right;
  bool bias_and_relu;

  ImageShape output() const {
    return {(input.height + window.pad_top + pad_bottom - window.height) / window.stride_height + 1,
            (input.width + window.pad_left + pad_right - window.width) / window.stride_width + 1, filters};
  }
  int64_t kernel_size() const { return window.height * window.width * input.channels * filters; }
};

std::string NameOf(const Case& c) {
  return std::to_string(c.window.height) + "x" + std::to_string(c.window.width) + "x" +
         std::to_string(c.input.channels) + "x" + std::to_string(c.filters) + "_By" +
         std::to_string(c.window.stride_height) + (c.bias_and_relu ? "_ReluBias" : "_Linear");
}

// Few and many channels, each kind of padding.
std::vector<Case> Cases() {
  return {
      {{8, 7, 3}, 16, {5, 5, 1, 1, 2, 2}, 2, 2, true},    {{9, 9, 16}, 20, {3, 3, 2, 2, 1, 1}, 1, 1, false},
      {{6, 6, 20}, 6, {1, 1, 2, 2, 0, 0}, 0, 0, false},   {{6, 6, 64}, 64, {5, 5, 1, 1, 2, 2}, 2, 2, true},
      {{5, 7, 64}, 128, {4, 2, 1, 1, 1, 0}, 2, 1, false}, {{7, 6, 128}, 64, {3, 3, 1, 1, 0, 0}, 0, 0, true},
      {{6, 6, 64}, 64, {3, 3, 2, 2, 0, 0}, 1, 1, false}};
}

class Conv2DKernelTest : public BackendTest<Case> {
 protected:
  static constexpr int64_t kSamples = 3;

  void SetUp() override {
    BackendTest::SetUp();
    if (IsSkipped()) return;
    if (const Support support = backend().Supports(Op::kConv2D, DataType::kFloat32); !support.supported) {
      GTEST_SKIP() << support.reason;
    }
  }

  // Calls `visit(input, kernel, output)` with the places of the factors and of the sum of each product.
  void ForEachProduct(const std::function<void(size_t, size_t, size_t)>& visit) const {
    const Case& c = test_case();
    const ImageShape in = c.input, out = c.output();
    for (int64_t n = 0; n < kSamples; ++n) {
      for (int64_t y = 0; y < out.height; ++y) {
        for (int64_t x = 0; x < out.width; ++x) {
          for (int64_t i = 0; i < c.window.height; ++i) {
            for (int64_t j = 0; j < c.window.width; ++j) {
              const int64_t row = y * c.window.stride_height + i - c.window.pad_top;
              const int64_t column = x * c.window.stride_width + j - c.window.pad_left;
              if (row < 0 || row >= in.height || column < 0 || column >= in.width) continue;
              const int64_t pixel = ((n * in.height + row) * in.width + column) * in.channels;
              const int64_t weights = (i * c.window.width + j) * in.channels * out.channels;
              const int64_t result = ((n * out.height + y) * out.width + x) * out.channels;
              for (int64_t k = 0; k < in.channels * out.channels; ++k) {
                visit(static_cast<size_t>(pixel + k / out.channels), static_cast<size_t>(weights + k),
                      static_cast<size_t>(result + k % out.channels));
              }
            }
          }
        }
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, Conv2DKernelTest,
                         testing::Combine(testing::ValuesIn(TestBackends()), testing::ValuesIn(Cases())),
                         TestName<Case>);

// Weights in Keras' order as the kernel keeps them.
std::vector<float> Stored(const ProductKernel& kernel, const std::vector<float>& canonical) {
  std::vector<float> stored(static_cast<size_t>(kernel.stored_size()));
  kernel.FromCanonical(canonical.data(), stored.data());
  return stored;
}

void ExpectNear(const std::vector<float>& values, const std::vector<double>& wanted,
                const std::string& what) {
  ASSERT_EQ(values.size(), wanted.size());
  double most = 0;
  for (const double value : wanted) most = std::max(most, std::abs(value));
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], wanted[i], 1e-5 * most) << what << " " << i;
}

TEST_P(Conv2DKernelTest, AgreesWithDoubles) {
  const Case& c = test_case();
  const auto outputs = static_cast<size_t>(kSamples * c.output().features());
  const std::vector<float> x = RandomValues(static_cast<size_t>(kSamples * c.input.features()), 1);
  const std::vector<float> w = RandomValues(static_cast<size_t>(c.kernel_size()), 2);
  const std::vector<float> b = RandomValues(static_cast<size_t>(c.filters), 3);
  const std::vector<float> dy = RandomValues(outputs, 4);
  const auto kernel = backend().MakeConv2D({.input = c.input,
                                            .output = c.output(),
                                            .window = c.window,
                                            .bias = c.bias_and_relu,
                                            .relu = c.bias_and_relu,
                                            .max_batch = kSamples});
  ASSERT_EQ(kernel->stored_size(), c.kernel_size());
  const OnBackend<float> x_there(backend(), x), w_there(backend(), Stored(*kernel, w)), b_there(backend(), b),
      dy_there(backend(), dy), y_there(backend(), outputs), dx_there(backend(), x.size()),
      dw_there(backend(), w.size()), db_there(backend(), b.size());
  kernel->Bind({.kernel = w_there.data(),
                .bias = c.bias_and_relu ? b_there.data() : nullptr,
                .dkernel = dw_there.data(),
                .dbias = c.bias_and_relu ? db_there.data() : nullptr});
  kernel->KernelChanged(0, c.kernel_size());
  kernel->Forward(kSamples, x_there.data(), y_there.data());
  kernel->Backward(kSamples, x_there.data(), y_there.data(), dy_there.data(), dx_there.data());
  const std::vector<float> y = y_there.Fetch();

  std::vector<double> sums(outputs);
  for (size_t i = 0; i < outputs && c.bias_and_relu; ++i) sums[i] = b[i % b.size()];
  ForEachProduct([&](size_t in, size_t weight, size_t out) { sums[out] += double{x[in]} * w[weight]; });
  if (c.bias_and_relu) {
    for (double& sum : sums) sum = std::max(sum, 0.0);
  }
  ExpectNear(y, sums, "y");

  std::vector<double> dx(x.size()), dw(w.size()), db(b.size());
  const auto gradient = [&](size_t out) { return c.bias_and_relu && !(y[out] > 0) ? 0.0 : double{dy[out]}; };
  ForEachProduct([&](size_t in, size_t weight, size_t out) {
    dx[in] += gradient(out) * w[weight];
    dw[weight] += gradient(out) * x[in];
  });
  ExpectNear(dx_there.Fetch(), dx, "dx");
  std::vector<float> kernel_gradient(w.size());
  kernel->ToCanonical(dw_there.Fetch().data(), kernel_gradient.data());
  ExpectNear(kernel_gradient, dw, "dw");
  if (!c.bias_and_relu) return;
  for (size_t i = 0; i < outputs; ++i) db[i % db.size()] += gradient(i);
  ExpectNear(db_there.Fetch(), db, "db");
}

// Another kernel after a step is another convolution, forward and backward.
TEST_P(Conv2DKernelTest, FollowsItsKernel) {
  const Case& c = test_case();
  const auto outputs = static_cast<size_t>(kSamples * c.output().features());
  const std::vector<float> x = RandomValues(static_cast<size_t>(kSamples * c.input.features()), 1);
  const std::vector<float> w = RandomValues(static_cast<size_t>(c.kernel_size()), 2);
  const auto kernel = backend().MakeConv2D(
      {.input = c.input, .output = c.output(), .window = c.window, .bias = false, .max_batch = kSamples});
  const OnBackend<float> x_there(backend(), x), w_there(backend(), Stored(*kernel, w)),
      dw_there(backend(), w.size()), y_there(backend(), outputs), dx_there(backend(), x.size());
  kernel->Bind({.kernel = w_there.data(), .dkernel = dw_there.data()});
  kernel->KernelChanged(0, c.kernel_size());
  const auto pass = [&] {
    const OnBackend<float> dy_there(backend(), std::vector<float>(outputs, 0.5F));
    kernel->Forward(kSamples, x_there.data(), y_there.data());
    kernel->Backward(kSamples, x_there.data(), y_there.data(), dy_there.data(), dx_there.data());
    std::vector<float> results = y_there.Fetch();
    for (const float value : dx_there.Fetch()) results.push_back(value);
    return results;
  };
  const std::vector<float> first = pass();
  std::vector<float> doubled = Stored(*kernel, w);
  for (float& weight : doubled) weight *= 2;
  backend().Upload(w_there.data(), doubled.data(), doubled.size() * sizeof(float));
  kernel->KernelChanged(0, c.kernel_size());
  const std::vector<float> second = pass();
  for (size_t i = 0; i < first.size(); ++i) ASSERT_FLOAT_EQ(second[i], 2 * first[i]) << i;
}

}  // namespace
}  // namespace lockstep::trainer
