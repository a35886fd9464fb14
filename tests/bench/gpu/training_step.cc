#include "tests/bench/gpu/training_step.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <vector>

#include "tests/bench/gpu/kernels.h"
#include "tests/bench/gpu/measure.h"
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
              {.sample = {widths[0]}, .max_local_batch = options.batch, .precision = precision}, device);
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
  if (mnist) {
    MeasureKernels(
        device, widths, options.batch, precision, [&] { dataset->Load(numbers); }, 200);
  }
  job->Finish();
}

}  // namespace lockstep::bench
