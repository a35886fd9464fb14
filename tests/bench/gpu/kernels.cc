#include "tests/bench/gpu/kernels.h"

#include <memory>
#include <string>

#include "tests/bench/gpu/measure.h"
#include "trainer/optimizer/optimizer.h"

namespace lockstep::bench {
namespace {

using namespace trainer;  // NOLINT(google-build-using-namespace)

// One dense layer with memory of its own.
struct Layer {
  Layer(DeviceBackend& backend, const DenseOptions& options)
      : device(backend), n(options.max_batch), kernel(device.MakeDense(options)) {
    const auto floats = static_cast<size_t>(kernel->stored_size());
    const auto in = static_cast<size_t>(n * options.inputs), out = static_cast<size_t>(n * options.units);
    w = Zeros(floats * sizeof(float));
    dw = Zeros(floats * sizeof(float));
    b = Zeros(static_cast<size_t>(options.units) * sizeof(float));
    db = Zeros(static_cast<size_t>(options.units) * sizeof(float));
    x = Zeros(in * SizeOf(options.input));
    dx = Zeros(options.input_gradient ? in * SizeOf(options.input) : 0);
    y = Zeros(out * SizeOf(options.output));
    dy = Zeros(out * SizeOf(options.input));
    kernel->Bind({.kernel = w.as<float>(),
                  .bias = options.bias ? b.as<float>() : nullptr,
                  .dkernel = dw.as<float>(),
                  .dbias = options.bias ? db.as<float>() : nullptr});
    kernel->KernelChanged(0, kernel->stored_size());
    if (options.bias) kernel->BiasChanged(0, options.units);
  }

  Buffer Zeros(size_t bytes) const {
    Buffer buffer(device.allocator(), bytes);
    device.Zero(buffer.data(), bytes);
    return buffer;
  }
  double ForwardSeconds(int count) {
    return DeviceSeconds(device, count, [&] { kernel->Forward(n, x.data(), y.data()); });
  }
  double BackwardSeconds(int count) {
    return DeviceSeconds(device, count, [&] {
      kernel->Backward(n, x.data(), y.data(), dy.data(), dx.bytes() > 0 ? dx.data() : nullptr);
    });
  }

  DeviceBackend& device;
  int64_t n;
  std::unique_ptr<ProductKernel> kernel;
  Buffer w, dw, b, db, x, dx, y, dy;
};

// Prints both and returns their sum.
double MeasureLayer(Layer& layer, const std::string& name, const std::string& shape, int count) {
  const double forward = layer.ForwardSeconds(count), backward = layer.BackwardSeconds(count);
  Print((name + "_forward_" + shape + "_microseconds").c_str(), forward * 1e6);
  Print((name + "_backward_" + shape + "_microseconds").c_str(), backward * 1e6);
  return forward + backward;
}

std::string Shape(const std::vector<int64_t>& widths, size_t i) {
  return std::to_string(widths[i - 1]) + "x" + std::to_string(widths[i]);
}

// Whether layer i is of the same shape as the one before.
bool AsBefore(const std::vector<int64_t>& widths, size_t i) {
  return i > 2 && widths[i] == widths[i - 1] && widths[i - 1] == widths[i - 2];
}

}  // namespace

double MeasureProducts(DeviceBackend& device, const std::vector<int64_t>& widths, int64_t batch,
                       Precision precision, int count) {
  double sum = 0, last = 0;
  for (size_t i = 1; i < widths.size(); ++i) {
    if (!AsBefore(widths, i)) {
      Layer layer(device, {.inputs = widths[i - 1],
                           .units = widths[i],
                           .bias = false,
                           .input_gradient = i > 1,
                           .input = ComputeType(precision),
                           .output = ComputeType(precision),
                           .tf32 = precision == Precision::kTf32,
                           .max_batch = batch});
      last = MeasureLayer(layer, "product", Shape(widths, i), count);
    }
    sum += last;
  }
  return sum;
}

void MeasureKernels(DeviceBackend& device, const std::vector<int64_t>& widths, int64_t batch,
                    Precision precision, const std::function<void()>& load, int count) {
  double sum = 0;
  const auto measure = [&](const char* name, const std::function<void()>& enqueue) {
    const double seconds = DeviceSeconds(device, count, enqueue);
    Print((std::string("kernel_") + name + "_microseconds").c_str(), seconds * 1e6);
    sum += seconds;
  };
  measure("gather", load);

  int64_t parameters = 0;
  for (size_t i = 1; i < widths.size(); ++i) {
    const bool last = i + 1 == widths.size();
    Layer layer(device, {.inputs = widths[i - 1],
                         .units = widths[i],
                         .relu = !last,
                         .input_gradient = i > 1,
                         .input = ComputeType(precision),
                         .output = last ? DataType::kFloat32 : ComputeType(precision),
                         .tf32 = precision == Precision::kTf32,
                         .max_batch = batch});
    sum += MeasureLayer(layer, "kernel", Shape(widths, i), count);
    parameters += layer.kernel->stored_size() + widths[i];
  }

  const int64_t outputs = widths.back();
  const auto loss = device.MakeLoss({.outputs = outputs, .output_gradient = ComputeType(precision)});
  const Buffer y(device.allocator(), static_cast<size_t>(batch * outputs) * sizeof(float));
  const Buffer dy(device.allocator(), static_cast<size_t>(batch * outputs) * sizeof(float));
  const Buffer labels(device.allocator(), static_cast<size_t>(batch) * sizeof(int32_t));
  const Buffer sums(device.allocator(), sizeof(LossSums));
  for (const Buffer* buffer : {&y, &labels}) device.Zero(buffer->data(), buffer->bytes());
  measure("loss",
          [&] { loss->Compute(batch, y.as<float>(), labels.data(), 1, dy.data(), sums.as<LossSums>()); });

  const auto adam = MakeOptimizer({.kind = OptimizerKind::kAdam, .learning_rate = 0.001}, device);
  const Buffer state(device.allocator(), static_cast<size_t>(4 * parameters) * sizeof(float));
  device.Zero(state.data(), state.bytes());
  auto* const first = state.as<float>();
  const UpdateBuffers buffers{.parameters = first,
                              .gradients = first + parameters,
                              .slots = {first + 2 * parameters, first + 3 * parameters}};
  measure("adam", [&] { adam->Update(1, buffers, 0, parameters, {}); });
  Print("kernels_together_microseconds", sum * 1e6);
}

}  // namespace lockstep::bench
