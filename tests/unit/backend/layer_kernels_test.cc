#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/unit/backend/test_backends.h"
#include "trainer/error.h"

// The layers' kernels of a device do what the processor's do, whose numbers other tests compare with an
// independent framework's.
namespace lockstep::trainer {
namespace {

using Values = std::vector<float>;

// A wave; in quarters it has values that are equal.
Values Wave(int64_t count, double step, bool quarters = false) {
  Values values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = 1.5 * std::sin(step * (static_cast<double>(i) + 1));
    values[i] = static_cast<float>(quarters ? std::round(4 * value) / 4 : value);
  }
  return values;
}

void ExpectNear(const Values& values, const Values& wanted, double tolerance) {
  ASSERT_EQ(values.size(), wanted.size());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], wanted[i], tolerance * (1 + std::abs(wanted[i]))) << "at " << i;
  }
}

template <typename Case>
class OnDeviceTest : public testing::TestWithParam<std::tuple<TestBackend, Case>> {
 protected:
  void SetUp() override {
    std::string why;
    device_ = MakeTestDevice(std::get<0>(this->GetParam()), {}, &why);
    if (device_ == nullptr) GTEST_SKIP() << why;
    processor_ = MakeTestBackend(TestBackend::kCpu, &why);
  }
  DeviceBackend& device() { return *device_; }
  Backend& processor() { return *processor_; }
  const Case& test_case() const { return std::get<1>(this->GetParam()); }

 private:
  std::unique_ptr<DeviceBackend> device_;
  std::unique_ptr<Backend> processor_;
};

struct FunctionCase {
  std::string name;
  FunctionOptions options;
  int64_t n, inputs, outputs;
};
std::string NameOf(const FunctionCase& c) { return c.name; }

FunctionCase Pool(const std::string& name, int64_t n, const ImageShape& in, const ImageShape& out,
                  const Window& window, bool maximum) {
  return {name, PoolOptions{.input = in, .output = out, .window = window, .maximum = maximum}, n,
          in.features(), out.features()};
}

std::vector<FunctionCase> FunctionCases() {
  std::vector<FunctionCase> cases;
  for (const bool maximum : {true, false}) {
    const std::string kind = maximum ? "Max" : "Average";
    cases.push_back(Pool(kind + "Same", 3, {9, 8, 20}, {5, 4, 20}, {3, 3, 2, 2, 1, 0}, maximum));
    cases.push_back(Pool(kind + "LeftOver", 2, {9, 8, 5}, {4, 4, 5}, {2, 2, 2, 2, 0, 0}, maximum));
    cases.push_back(Pool(kind + "Overlapping", 2, {6, 7, 150}, {6, 3, 150}, {3, 2, 1, 2, 1, 0}, maximum));
    cases.push_back(Pool(kind + "Apart", 2, {7, 7, 1}, {3, 3, 1}, {1, 2, 3, 3, 0, 0}, maximum));
    cases.push_back(Pool(kind + "Large", 2, {17, 34, 3}, {1, 2, 3}, {17, 17, 17, 17, 0, 0}, maximum));
  }
  const ImageShape image{7, 5, 130};
  cases.push_back({"Global", GlobalAveragePoolOptions{image}, 3, image.features(), image.channels});
  const auto response = [&](const std::string& name, const LocalResponseOptions& options) {
    cases.push_back({name, options, 2, options.input.features(), options.input.features()});
  };
  response("Response", {.input = {5, 5, 64}, .radius = 4, .alpha = 0.3F, .beta = 0.75F});
  response("ResponseRoot", {.input = {3, 4, 20}, .radius = 2, .alpha = 0.1F});
  response("ResponseOverAll", {.input = {4, 3, 3}, .radius = 5, .bias = 2, .alpha = 1, .beta = 0.6F});
  for (const auto& [name, function] :
       {std::pair{"Relu", Function::kRelu}, {"Gelu", Function::kGelu}, {"Softmax", Function::kSoftmax}}) {
    cases.push_back(
        {name, ActivationOptions{.function = function, .features = 1001, .last_axis = 143}, 3, 1001, 1001});
  }
  return cases;
}

using FunctionsOnDeviceTest = OnDeviceTest<FunctionCase>;
INSTANTIATE_TEST_SUITE_P(Devices, FunctionsOnDeviceTest,
                         testing::Combine(testing::ValuesIn(TestDevices()),
                                          testing::ValuesIn(FunctionCases())),
                         TestName<FunctionCase>);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FunctionsOnDeviceTest);

// y and dx.
std::pair<Values, Values> RunFunction(Backend& backend, const FunctionCase& c) {
  const auto kernel = backend.MakeFunction(c.options);
  const OnBackend<float> x(backend, Wave(c.n * c.inputs, 0.37, true)),
      dy(backend, Wave(c.n * c.outputs, 0.9));
  const OnBackend<float> y(backend, Values(static_cast<size_t>(c.n * c.outputs), NAN));
  const OnBackend<float> dx(backend, Values(static_cast<size_t>(c.n * c.inputs), NAN));
  const Buffer saved(backend.allocator(), kernel->saved_bytes(c.n));
  kernel->Forward(c.n, x.data(), y.data(), saved.data());
  kernel->Backward(c.n, x.data(), y.data(), saved.data(), dy.data(), dx.data());
  return {y.Fetch(), dx.Fetch()};
}

TEST_P(FunctionsOnDeviceTest, AreTheProcessors) {
  const auto [y, dx] = RunFunction(device(), test_case());
  const auto [wanted_y, wanted_dx] = RunFunction(processor(), test_case());
  ExpectNear(y, wanted_y, 3e-6);
  ExpectNear(dx, wanted_dx, 3e-6);
}

struct NormalizationCase {
  int64_t n, rows, channels;  // rows: of a sample
  bool relu = false;
  bool bare = false;       // without gamma and beta
  bool exchanges = false;  // with another replica, which has the same samples
};
std::string NameOf(const NormalizationCase& c) {
  return std::to_string(c.n) + "x" + std::to_string(c.rows) + "x" + std::to_string(c.channels) +
         (c.relu ? "_Relu" : "") + (c.bare ? "_Bare" : "") + (c.exchanges ? "_Exchanging" : "");
}

using NormalizationsOnDeviceTest = OnDeviceTest<NormalizationCase>;
INSTANTIATE_TEST_SUITE_P(
    Devices, NormalizationsOnDeviceTest,
    testing::Combine(testing::ValuesIn(TestDevices()),
                     testing::Values(NormalizationCase{5, 7, 1}, NormalizationCase{8, 49, 3, true},
                                     NormalizationCase{64, 64, 16, true}, NormalizationCase{6, 81, 20},
                                     NormalizationCase{9, 33, 32, false, true},
                                     NormalizationCase{3, 25, 300, true},
                                     NormalizationCase{7, 1, 12, true, false, true})),
    TestName<NormalizationCase>);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NormalizationsOnDeviceTest);

// Shifted waves, so that there are means to take away.
Values Samples(const NormalizationCase& c) {
  Values x = Wave(c.n * c.rows * c.channels, 0.77);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] += 0.25F * static_cast<float>(i % static_cast<size_t>(c.channels) % 5);
  return x;
}

struct Normalized {
  Values y, dx, dgamma, dbeta, mean, variance, later;
};

Normalized RunBatchNormalization(Backend& backend, const NormalizationCase& c) {
  const auto channels = static_cast<size_t>(c.channels);
  const auto kernel = backend.MakeBatchNormalization(
      {.pixels = c.rows, .channels = c.channels, .momentum = 0.75F, .relu = c.relu, .max_batch = c.n});
  const Values samples = Samples(c);
  const OnBackend<float> x(backend, samples), dy(backend, Wave(static_cast<int64_t>(samples.size()), 0.9));
  const OnBackend<float> gamma(backend, Wave(c.channels, 0.3)), beta(backend, Wave(c.channels, 0.2));
  const OnBackend<float> dgamma(backend, Values(channels, 0)), dbeta(backend, Values(channels, 0));
  const OnBackend<float> y(backend, Values(samples.size(), NAN)), dx(backend, Values(samples.size(), NAN));
  if (!c.bare) kernel->Bind({gamma.data(), beta.data(), dgamma.data(), dbeta.data()});
  const Buffer saved(backend.allocator(), kernel->saved_bytes());
  BatchNormalizationKernel::SumOverReplicas sum;
  if (c.exchanges) {
    sum = [](std::span<double> values) {
      for (double& value : values) value *= 2;
    };
  }
  Normalized made;
  for (int step = 0; step < 2; ++step) {
    kernel->Forward(c.n, x.data(), y.data(), saved.data(), /*training=*/true, sum);
    made.y = y.Fetch();
    kernel->Backward(c.n, x.data(), y.data(), saved.data(), dy.data(), dx.data(), sum);
  }
  made.dx = dx.Fetch();
  made.dgamma = dgamma.Fetch();
  made.dbeta = dbeta.Fetch();
  made.mean.resize(channels);
  made.variance.resize(channels);
  kernel->ExportState(made.mean.data(), made.variance.data());
  kernel->Forward(c.n, x.data(), y.data(), nullptr, /*training=*/false, {});
  made.later = y.Fetch();
  return made;
}

TEST_P(NormalizationsOnDeviceTest, OfBatchesAreTheProcessors) {
  const Normalized made = RunBatchNormalization(device(), test_case());
  const Normalized wanted = RunBatchNormalization(processor(), test_case());
  ExpectNear(made.y, wanted.y, 1e-5);
  ExpectNear(made.dx, wanted.dx, 3e-5);
  ExpectNear(made.dgamma, wanted.dgamma, 3e-5);
  ExpectNear(made.dbeta, wanted.dbeta, 3e-5);
  ExpectNear(made.mean, wanted.mean, 1e-6);
  ExpectNear(made.variance, wanted.variance, 1e-5);
  ExpectNear(made.later, wanted.later, 1e-5);
  EXPECT_EQ(RunBatchNormalization(device(), test_case()).dgamma, made.dgamma) << "the same bits each time";
}

// A replica without samples takes part in the sums, and one without any changes nothing.
TEST_P(NormalizationsOnDeviceTest, OfNoSamplesAreOfTheOthers) {
  const int64_t channels = test_case().channels;
  const auto make = [&](Backend& backend) {
    return backend.MakeBatchNormalization({.channels = channels, .momentum = 0.5F, .max_batch = 4});
  };
  const auto kernel = make(device());
  const Buffer saved(device().allocator(), kernel->saved_bytes());
  double brought = -1;
  const auto of_another = [&](std::span<double> values) {
    brought = std::accumulate(values.begin(), values.end(), 0.0);
    std::fill(values.begin(), values.end(), 2.0);
  };
  Values mean(static_cast<size_t>(channels)), variance(mean);
  kernel->Forward(0, nullptr, nullptr, saved.data(), true, of_another);
  EXPECT_EQ(brought, 0);
  kernel->ExportState(mean.data(), variance.data());
  EXPECT_THAT(mean, testing::Each(0.5F));      // Σ x = 2 of two values
  EXPECT_THAT(variance, testing::Each(0.5F));  // and Σ x² = 2
  kernel->Backward(0, nullptr, nullptr, saved.data(), nullptr, nullptr, of_another);
  EXPECT_EQ(brought, 0);
  kernel->Forward(0, nullptr, nullptr, saved.data(), true, [](std::span<double>) {});
  kernel->ExportState(mean.data(), variance.data());
  EXPECT_THAT(mean, testing::Each(0.5F));
}

Normalized RunLayerNormalization(Backend& backend, const NormalizationCase& c) {
  const auto channels = static_cast<size_t>(c.channels);
  const auto kernel = backend.MakeLayerNormalization({.rows = c.rows, .last_axis = c.channels});
  const Values samples = Samples(c);
  const OnBackend<float> x(backend, samples), dy(backend, Wave(static_cast<int64_t>(samples.size()), 0.9));
  const OnBackend<float> gamma(backend, Wave(c.channels, 0.3)), beta(backend, Wave(c.channels, 0.2));
  const OnBackend<float> dgamma(backend, Values(channels, 0)), dbeta(backend, Values(channels, 0));
  const OnBackend<float> y(backend, Values(samples.size(), NAN)), dx(backend, Values(samples.size(), NAN));
  if (!c.bare) kernel->Bind({{gamma.data(), beta.data()}, {dgamma.data(), dbeta.data()}});
  kernel->Forward(c.n, x.data(), y.data());
  kernel->Backward(c.n, x.data(), dy.data(), dx.data());
  return {.y = y.Fetch(), .dx = dx.Fetch(), .dgamma = dgamma.Fetch(), .dbeta = dbeta.Fetch()};
}

TEST_P(NormalizationsOnDeviceTest, OfRowsAreTheProcessors) {
  const Normalized made = RunLayerNormalization(device(), test_case());
  const Normalized wanted = RunLayerNormalization(processor(), test_case());
  ExpectNear(made.y, wanted.y, 1e-5);
  ExpectNear(made.dx, wanted.dx, 3e-4);  // (1 / σ of three values may be large.)
  ExpectNear(made.dgamma, wanted.dgamma, 3e-5);
  ExpectNear(made.dbeta, wanted.dbeta, 3e-5);
}

using LayerKernelsOnDeviceTest = OnDeviceTest<AnyCase>;
INSTANTIATE_TEST_SUITE_P(Devices, LayerKernelsOnDeviceTest,
                         testing::Combine(testing::ValuesIn(TestDevices()), testing::Values(AnyCase())),
                         TestName<AnyCase>);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LayerKernelsOnDeviceTest);

constexpr EmbeddingOptions kTable{.positions = 37, .entries = 11, .width = 150};

TEST_P(LayerKernelsOnDeviceTest, RowsOfATableAreAddedInTheirOrder) {
  constexpr int64_t kSamples = 9;
  const auto run = [&](Backend& backend) {
    const auto kernel = backend.MakeEmbedding(kTable);
    Values numbers(kSamples * kTable.positions);
    // (No 7 among them, and most are above 2.)
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = static_cast<float>(i % 5 == 0 ? i % 3 : i * i % kTable.entries);
      if (numbers[i] == 7) numbers[i] = 10;
    }
    const OnBackend<float> x(backend, numbers), table(backend, Wave(kTable.entries * kTable.width, 0.3));
    const OnBackend<float> gradient(backend, Values(static_cast<size_t>(kTable.entries * kTable.width), NAN));
    const OnBackend<float> y(backend, numbers.size() * static_cast<size_t>(kTable.width));
    const OnBackend<float> dy(backend, Wave(kSamples * kTable.positions * kTable.width, 0.9));
    kernel->Bind({.values = {table.data()}, .gradients = {gradient.data()}});
    kernel->Forward(kSamples, x.data(), y.data());
    kernel->Backward(kSamples, x.data(), dy.data(), nullptr);
    return std::pair{y.Fetch(), gradient.Fetch()};
  };
  const auto made = run(device()), wanted = run(processor());
  EXPECT_EQ(made.first, wanted.first);
  EXPECT_EQ(made.second, wanted.second);
}

TEST_P(LayerKernelsOnDeviceTest, ANumberThatTheTableLacksIsToldByTheNextCall) {
  const auto kernel = device().MakeEmbedding(kTable);
  Values numbers(3 * kTable.positions, 10);
  numbers[2 * kTable.positions + 5] = 11;
  numbers[kTable.positions] = -1;
  const OnBackend<float> x(device(), numbers), table(device(), Values(kTable.entries * kTable.width));
  const OnBackend<float> y(device(), numbers.size() * static_cast<size_t>(kTable.width));
  kernel->Bind({.values = {table.data()}});
  kernel->Forward(3, x.data(), y.data());
  try {
    device().Synchronize();
    FAIL();
  } catch (const BadData& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("sample 1 of the batch has the number -1"));
    EXPECT_THAT(error.what(), testing::HasSubstr("entries 0 to 10"));
  }
  EXPECT_THROW(device().Zero(y.data(), sizeof(float)), BadData) << "whoever has not heard it";
}

struct Convolved {
  Values y, dx, dkernel, dbias;
};

// `offset`: floats that x begins behind a good place. The kernel and its gradient are in Keras' order.
Convolved RunConvolution(Backend& backend, const Conv2DOptions& options, int64_t n, size_t offset = 0) {
  const auto kernel = backend.MakeConv2D(options);
  const int64_t filters = options.output.channels;
  const auto stored_size = static_cast<size_t>(kernel->stored_size());
  Values stored(stored_size), gradient(stored_size);
  kernel->FromCanonical(Wave(kernel->stored_size(), 0.7).data(), stored.data());
  const OnBackend<float> x(backend, Wave(n * options.input.features() + static_cast<int64_t>(offset), 0.37));
  const OnBackend<float> w(backend, stored), b(backend, Wave(filters, 0.5));
  const OnBackend<float> dw(backend, Values(stored_size, NAN)), db(backend, Values(b.Fetch().size(), NAN));
  const OnBackend<float> y(backend, Values(static_cast<size_t>(n * options.output.features()), NAN));
  const OnBackend<float> dy(backend, Wave(n * options.output.features(), 0.9));
  const OnBackend<float> dx(backend, Values(static_cast<size_t>(n * options.input.features()), NAN));
  kernel->Bind({.kernel = w.data(),
                .bias = options.bias ? b.data() : nullptr,
                .dkernel = dw.data(),
                .dbias = options.bias ? db.data() : nullptr});
  kernel->KernelChanged(0, kernel->stored_size());
  kernel->Forward(n, x.data() + offset, y.data());
  kernel->Backward(n, x.data() + offset, y.data(), dy.data(), options.input_gradient ? dx.data() : nullptr);
  kernel->ToCanonical(dw.Fetch().data(), gradient.data());
  return {y.Fetch(), dx.Fetch(), gradient, options.bias ? db.Fetch() : Values()};
}

struct ConvolutionCase {
  std::string name;
  int64_t n;
  Conv2DOptions options;
};
std::string NameOf(const ConvolutionCase& c) { return c.name; }

std::vector<ConvolutionCase> ConvolutionCases() {
  const auto made = [](const ImageShape& in, const ImageShape& out, const Window& window) {
    return Conv2DOptions{.input = in, .output = out, .window = window, .max_batch = 4};
  };
  const Window three{3, 3, 1, 1, 1, 1}, wide{5, 3, 1, 2, 2, 1};
  std::vector<ConvolutionCase> cases = {
      {"Same", 4, made({6, 5, 8}, {6, 5, 12}, three)},
      {"OneByOne", 3, made({4, 4, 5}, {4, 4, 7}, {1, 1, 1, 1, 0, 0})},
      {"Wide", 2, made({7, 9, 3}, {7, 5, 4}, wide)},
      // As TensorFlow pads: a row more below and a column more on the right.
      {"MoreBelow", 4, made({8, 8, 6}, {4, 4, 10}, {3, 3, 2, 2, 0, 0})},
      {"MoreOnTheRight", 1, made({5, 8, 3}, {5, 4, 3}, {3, 4, 1, 2, 1, 1})},
      // What is left over below counts for nothing.
      {"LeftOver", 2, made({8, 9, 2}, {3, 4, 3}, {3, 2, 2, 2, 0, 0})},
      {"SkipsPixels", 2, made({7, 7, 4}, {3, 3, 6}, {1, 1, 3, 3, 0, 0})}};
  const size_t plain = cases.size();
  for (size_t i = 0; i < plain; ++i) {
    ConvolutionCase relu = cases[i], bare = cases[i];
    relu.name += "_Relu";
    relu.options.relu = true;
    bare.name += "_ReluWithoutBias";
    bare.options.relu = true;
    bare.options.bias = false;
    bare.options.input_gradient = i % 2 == 0;
    cases.push_back(relu);
    cases.push_back(bare);
  }
  return cases;
}

class ConvolutionsOnDeviceTest : public OnDeviceTest<ConvolutionCase> {
 protected:
  void SetUp() override {
    OnDeviceTest::SetUp();
    if (IsSkipped()) return;
    const Support support = device().Supports(Op::kConv2D, DataType::kFloat32);
    if (!support.supported) GTEST_SKIP() << support.reason;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, ConvolutionsOnDeviceTest,
                         testing::Combine(testing::ValuesIn(TestDevices()),
                                          testing::ValuesIn(ConvolutionCases())),
                         TestName<ConvolutionCase>);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ConvolutionsOnDeviceTest);

TEST_P(ConvolutionsOnDeviceTest, AreTheProcessors) {
  const auto& [name, n, options] = test_case();
  const Convolved wanted = RunConvolution(processor(), options, n);
  const Convolved made = RunConvolution(device(), options, n);
  ExpectNear(made.y, wanted.y, 2e-5);
  ExpectNear(made.dkernel, wanted.dkernel, 2e-5);
  ExpectNear(made.dbias, wanted.dbias, 2e-5);
  if (options.input_gradient) ExpectNear(made.dx, wanted.dx, 2e-5);
  // The same bits each time.
  const Convolved again = RunConvolution(device(), options, n);
  EXPECT_EQ(again.y, made.y);
  EXPECT_EQ(again.dkernel, made.dkernel);
}

// A part of a batch may begin at any sample.
TEST_P(ConvolutionsOnDeviceTest, TakeImagesFromAnywhere) {
  const auto& [name, n, options] = test_case();
  const Convolved wanted = RunConvolution(processor(), options, n, 1);
  const Convolved made = RunConvolution(device(), options, n, 1);
  ExpectNear(made.y, wanted.y, 2e-5);
  ExpectNear(made.dkernel, wanted.dkernel, 2e-5);
}

TEST_P(ConvolutionsOnDeviceTest, Tf32RoundsWhereItIsAskedFor) {
  if (device().identity().capability < 80) GTEST_SKIP() << "it has no TF32";
  Conv2DOptions options = test_case().options;
  const Convolved wide = RunConvolution(device(), options, test_case().n);
  options.tf32 = true;
  const Convolved rounded = RunConvolution(device(), options, test_case().n);
  ExpectNear(rounded.y, wide.y, 2e-2);
  EXPECT_NE(rounded.y, wide.y);
  EXPECT_NE(rounded.dkernel, wide.dkernel);
}

struct DropoutMade {
  Values y, dx;
};
DropoutMade RunDropout(Backend& backend, int64_t n, int64_t features) {
  const auto kernel = backend.MakeDropout(0.3F, features);
  const OnBackend<float> x(backend, Wave(n * features, 0.37)), dy(backend, Wave(n * features, 0.9));
  const OnBackend<float> y(backend, static_cast<size_t>(n * features)), dx(backend, y.Fetch());
  const Buffer saved(backend.allocator(), kernel->saved_bytes(n));
  std::vector<uint32_t> samples(static_cast<size_t>(n));
  std::iota(samples.begin(), samples.end(), 4'000'000'000U);
  kernel->Forward(n, x.data(), y.data(), saved.data(),
                  {.seed = 0x123456789abcdef, .epoch = 3, .stream = 17, .samples = samples});
  samples.assign(samples.size(), 0);  // they were needed in the call alone
  kernel->Backward(n, saved.data(), dy.data(), dx.data());
  return {y.Fetch(), dx.Fetch()};
}

TEST_P(LayerKernelsOnDeviceTest, DropoutDrawsTheSameOnEveryDevice) {
  for (const auto& [n, features] : {std::pair<int64_t, int64_t>{1000, 10}, {3, 4099}}) {
    const DropoutMade made = RunDropout(device(), n, features), wanted = RunDropout(processor(), n, features);
    EXPECT_EQ(made.y, wanted.y);
    EXPECT_EQ(made.dx, wanted.dx);
  }
}

TEST_P(LayerKernelsOnDeviceTest, BranchesAreAdded) {
  constexpr int64_t kCount = 1003;
  for (const size_t offset : {0, 1}) {
    const auto run = [&](Backend& backend) {
      const OnBackend<float> a(backend, Wave(kCount + 1, 0.4)), b(backend, Wave(kCount + 1, 0.7));
      const OnBackend<float> sum(backend, kCount + 1), positive(backend, kCount + 1),
          copy(backend, kCount + 1);
      backend.Add(kCount, a.data() + offset, b.data(), false, sum.data());
      backend.Add(kCount, a.data() + offset, b.data(), true, positive.data());
      backend.MaskGradient(kCount, positive.data(), a.data());
      backend.Copy(kCount, a.data() + offset, copy.data());
      return std::vector{sum.Fetch(), positive.Fetch(), a.Fetch(), copy.Fetch()};
    };
    EXPECT_EQ(run(device()), run(processor()));
  }
}

// What a recorded step changes on the device, it changes each time; what is new in every step is not in it.
TEST_P(LayerKernelsOnDeviceTest, StatisticsMoveInARecordingAndDropoutIsNotInOne) {
  const auto kernel = device().MakeBatchNormalization({.channels = 1, .momentum = 0.5F, .max_batch = 2});
  const OnBackend<float> x(device(), {1, 3}), y(device(), 2);
  const Buffer saved(device().allocator(), kernel->saved_bytes());
  const auto forward = [&] { kernel->Forward(2, x.data(), y.data(), saved.data(), true, {}); };
  forward();
  const auto graph = device().Record(forward);
  ASSERT_NE(graph, nullptr);
  graph->Launch();
  float mean = 0, variance = 0;
  kernel->ExportState(&mean, &variance);
  EXPECT_FLOAT_EQ(mean, 1.5F);
  EXPECT_FLOAT_EQ(variance, 1);
  const auto exchanging = [&] {
    kernel->Forward(2, x.data(), y.data(), saved.data(), true, [](std::span<double>) {});
  };
  EXPECT_EQ(device().Record(exchanging), nullptr);

  const auto dropout = device().MakeDropout(0.5F, 1);
  const std::vector<uint32_t> samples{1, 2};
  EXPECT_EQ(
      device().Record([&] { dropout->Forward(2, x.data(), y.data(), saved.data(), {.samples = samples}); }),
      nullptr);
}

}  // namespace
}  // namespace lockstep::trainer
