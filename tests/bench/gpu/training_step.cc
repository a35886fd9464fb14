#include "tests/bench/gpu/training_step.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <vector>

#include "trainer/devices.h"
#include "trainer/error.h"
#include "trainer/model/model.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/strategy/strategy.h"

namespace lockstep::bench {
namespace {

using namespace trainer;  // NOLINT(google-build-using-namespace)
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 5;

double Seconds(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double ProcessorSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void Print(const char* what, double value) { std::printf("%s %.6g\n", what, value); }

Precision PrecisionOf(const std::string& name) {
  for (const Precision precision : {Precision::kFloat32, Precision::kTf32, Precision::kBFloat16}) {
    if (name == PrecisionName(precision)) return precision;
  }
  throw BadModel("precision \"" + name + "\"; Float32, TF32 and BFloat16 are there");
}

std::vector<int64_t> WidthsOf(const StepOptions& options) {
  if (options.job == "mnist") return {784, 256, 256, 10};
  return std::vector<int64_t>(static_cast<size_t>(options.layers) + 1, options.width);
}

ModelConfig ConfigOf(const std::vector<int64_t>& widths, LossKind loss) {
  ModelConfig config;
  config.loss = loss;
  for (size_t i = 1; i < widths.size(); ++i) {
    LayerConfig layer;
    layer.units = widths[i];
    layer.activation = i + 1 < widths.size() ? Activation::kRelu : Activation::kNone;
    config.layers.push_back(layer);
  }
  return config;
}

// The best of several rounds: seconds an execution of `enqueue`, on the device's own clock.
double DeviceSeconds(DeviceBackend& device, int count, const std::function<void()>& enqueue) {
  const auto start = device.MakeEvent(true), end = device.MakeEvent(true);
  double best = 1e30;
  for (int round = 0; round <= kRounds; ++round) {
    start->Record(device.compute_stream());
    for (int i = 0; i < count; ++i) enqueue();
    end->Record(device.compute_stream());
    device.Synchronize();
    if (round > 0) best = std::min(best, end->SecondsSince(*start) / count);
  }
  return best;
}

// A layer without bias and activation: forward and backward are the bare products of a Dense layer.
struct BareLayer {
  BareLayer(DeviceBackend& backend, int64_t batch, int64_t inputs, int64_t units, bool first,
            Precision precision)
      : device(backend),
        n(batch),
        kernel(device.MakeDense({.inputs = inputs,
                                 .units = units,
                                 .bias = false,
                                 .input_gradient = !first,
                                 .input = ComputeType(precision),
                                 .output = ComputeType(precision),
                                 .tf32 = precision == Precision::kTf32,
                                 .max_batch = batch})),
        has_dx(!first) {
    const auto floats = static_cast<size_t>(kernel->stored_size()) * sizeof(float);
    const size_t element = SizeOf(ComputeType(precision));
    w = Buffer(device.allocator(), floats);
    dw = Buffer(device.allocator(), floats);
    x = Buffer(device.allocator(), static_cast<size_t>(n * inputs) * element);
    dx = Buffer(device.allocator(), static_cast<size_t>(n * inputs) * element);
    y = Buffer(device.allocator(), static_cast<size_t>(n * units) * element);
    for (const Buffer* buffer : {&w, &dw, &x, &dx, &y}) device.Zero(buffer->data(), buffer->bytes());
    kernel->Bind({.kernel = w.as<float>(), .dkernel = dw.as<float>()});
    kernel->KernelChanged(0, kernel->stored_size());
  }
  void Forward() { kernel->Forward(n, x.data(), y.data()); }
  void Backward() { kernel->Backward(n, x.data(), y.data(), y.data(), has_dx ? dx.data() : nullptr); }

  DeviceBackend& device;
  int64_t n;
  std::unique_ptr<DenseKernel> kernel;
  bool has_dx;
  Buffer w, dw, x, dx, y;
};

// Returns the seconds that all bare products of a step take.
double MeasureProducts(DeviceBackend& device, const std::vector<int64_t>& widths, int64_t batch,
                       Precision precision, int count) {
  double sum = 0;
  for (size_t i = 1; i < widths.size(); ++i) {
    // Layers of one shape take the same time: only the first and the second differ.
    if (i > 2 && widths[i] == widths[i - 1] && widths[i - 1] == widths[i - 2]) continue;
    BareLayer layer(device, batch, widths[i - 1], widths[i], i == 1, precision);
    const double forward = DeviceSeconds(device, count, [&] { layer.Forward(); });
    const double backward = DeviceSeconds(device, count, [&] { layer.Backward(); });
    const std::string shape = std::to_string(widths[i - 1]) + "x" + std::to_string(widths[i]);
    Print(("product_forward_" + shape + "_microseconds").c_str(), forward * 1e6);
    Print(("product_backward_" + shape + "_microseconds").c_str(), backward * 1e6);
    int64_t alike = 1;
    if (i == 2) {
      for (size_t j = 3; j < widths.size() && widths[j] == widths[j - 1] && widths[j - 1] == widths[j - 2];
           ++j)
        ++alike;
    }
    sum += static_cast<double>(alike) * (forward + backward);
  }
  return sum;
}

}  // namespace

void MeasureCopies() {
  constexpr size_t kBytes = size_t{1} << 30;
  Devices devices({});
  auto& device = dynamic_cast<DeviceBackend&>(devices.At("GPU:0"));
  const Buffer from(device.allocator(), kBytes), to(device.allocator(), kBytes);
  device.Zero(from.data(), kBytes);
  const double seconds = DeviceSeconds(device, 20, [&] { device.CopyAsync(to.data(), from.data(), kBytes); });
  Print("copy_bytes_per_second", 2.0 * static_cast<double>(kBytes) / seconds);
}

void MeasureSteps(const StepOptions& options) {
  const bool mnist = options.job == "mnist";
  const Precision precision = PrecisionOf(options.precision);
  const std::vector<int64_t> widths = WidthsOf(options);
  Devices devices({});
  auto& device = dynamic_cast<DeviceBackend&>(devices.At("GPU:0"));
  std::printf("device %s\n", device.description().c_str());

  const LossKind loss = mnist ? LossKind::kSparseCategoricalCrossentropy : LossKind::kMeanSquaredError;
  Model model(ConfigOf(widths, loss),
              {.features = widths[0], .max_local_batch = options.batch, .precision = precision}, device);
  const auto optimizer = MakeOptimizer(
      {.kind = mnist ? OptimizerKind::kAdam : OptimizerKind::kSgd, .learning_rate = 0.001}, device);
  const auto job = strategy::MakeStrategy(
      {.kind = strategy::Kind::kOneDevice, .device = &device, .record_steps = options.graphs});
  job->Setup(model, *optimizer, 1);

  const int64_t samples = mnist ? 50'000 : options.batch;
  std::vector<uint8_t> rows(static_cast<size_t>(samples * widths[0]));
  std::vector<int32_t> labels(static_cast<size_t>(samples));
  uint32_t state = 12345;
  const auto random = [&state] { return (state = state * 1664525u + 1013904223u) >> 8; };
  for (uint8_t& value : rows) value = random() % 5 == 0 ? static_cast<uint8_t>(random()) : 0;
  for (int32_t& label : labels) label = static_cast<int32_t>(random() % 10);
  const auto dataset = mnist ? device.MakeDataset({.rows = rows.data(),
                                                   .targets = labels.data(),
                                                   .samples = samples,
                                                   .features = widths[0],
                                                   .scale = 1.0f / 255,
                                                   .input_type = model.input_type(),
                                                   .max_batch = options.batch})
                             : nullptr;
  // "dense" has a target a unit, which no data set has: its batch stays where it is.
  const Buffer inputs(device.allocator(), mnist ? 0 : static_cast<size_t>(options.batch * widths[0]) * 4);
  const Buffer targets(device.allocator(),
                       mnist ? 0 : static_cast<size_t>(options.batch * widths.back()) * 4);
  if (!mnist) {
    device.Zero(inputs.data(), inputs.bytes());
    device.Zero(targets.data(), targets.bytes());
  }
  std::vector<uint32_t> numbers(static_cast<size_t>(options.batch));

  int64_t started = 0, finished = 0;
  double host = 0;
  const auto run = [&](int64_t steps) {
    const int64_t end = started + steps;
    while (finished < end) {
      const double before = ProcessorSeconds();
      while (started < end && started - finished < job->max_in_flight()) {
        strategy::Batch batch{.inputs = inputs.data(),
                              .labels = targets.data(),
                              .local_samples = options.batch,
                              .global_samples = options.batch};
        if (dataset) {
          for (size_t i = 0; i < numbers.size(); ++i) {
            numbers[i] = static_cast<uint32_t>((static_cast<uint64_t>(started) * numbers.size() + i * 7919) %
                                               static_cast<uint64_t>(samples));
          }
          const auto loaded = dataset->Load(numbers);
          batch.inputs = loaded.inputs;
          batch.labels = loaded.labels;
        }
        job->StartStep(batch);
        ++started;
      }
      host += ProcessorSeconds() - before;
      job->FinishStep();
      ++finished;
    }
  };
  run(std::min<int64_t>(200, options.steps));
  const DeviceMemoryUse before = device.memory_use();
  double best = 1e30, best_host = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    host = 0;
    const auto start = Clock::now();
    run(options.steps);
    best = std::min(best, Seconds(start) / static_cast<double>(options.steps));
    best_host = std::min(best_host, host / static_cast<double>(options.steps));
  }
  const DeviceMemoryUse after = device.memory_use();
  Print("step_microseconds", best * 1e6);
  Print("host_microseconds", best_host * 1e6);
  Print("memory_used_before_bytes", static_cast<double>(before.used));
  Print("memory_used_after_bytes", static_cast<double>(after.used));
  Print("memory_held_after_bytes", static_cast<double>(after.held));

  const double flops = static_cast<double>(model.training_flops() * options.batch);
  Print("step_tflops", flops / best * 1e-12);
  const double products = MeasureProducts(device, widths, options.batch, precision, mnist ? 200 : 5);
  Print("products_microseconds", products * 1e6);
  Print("products_tflops", flops / products * 1e-12);
  job->Finish();
}

}  // namespace lockstep::bench
