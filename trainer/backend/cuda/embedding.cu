#include <cmath>

#include "trainer/backend/cuda/launch.h"
#include "trainer/backend/cuda/layer_kernels.h"
#include "trainer/backend/cuda/number_checks.h"
#include "trainer/backend/cuda/numbers.cuh"

namespace lockstep::trainer::cuda {
namespace {

constexpr int kThreads = 128;

__device__ bool InTable(float number, int64_t entries) {
  return number >= 0 && number < static_cast<float>(entries);
}

// A block has one position.
__global__ void __launch_bounds__(kThreads)
    TakeRows(int64_t entries, int64_t width, const float* x, const float* table, float* y,
             unsigned long long* report) {
  const unsigned position = blockIdx.x;
  const float number = x[position];
  const bool known = InTable(number, entries);
  if (!known && threadIdx.x == 0) {
    atomicMin(report, static_cast<unsigned long long>(position) << 32 | __float_as_uint(number));
  }
  const float* row = table + (known ? static_cast<int64_t>(number) : 0) * width;
  for (int64_t i = threadIdx.x; i < width; i += kThreads) y[position * width + i] = known ? row[i] : NAN;
}

// A block has one position. The first one with its entry adds up those of all that have it, in their order;
// the others have nothing to do. Numbers are looked for among all positions: that is much reading, of little
// memory.
__global__ void __launch_bounds__(kThreads) AddRows(int64_t positions, int64_t entries, int64_t width,
                                                    const float* x, const float* dy, float* dtable) {
  const int64_t mine = blockIdx.x;
  if (!InTable(x[mine], entries)) return;
  const auto entry = static_cast<int64_t>(x[mine]);
  const auto has_entry = [&](int64_t position) {
    return InTable(x[position], entries) && static_cast<int64_t>(x[position]) == entry;
  };
  for (int64_t first = 0; first < mine; first += kThreads) {
    const int64_t position = first + threadIdx.x;
    if (__syncthreads_or(position < mine && has_entry(position) ? 1 : 0) != 0) return;
  }
  __shared__ bool found[kThreads];
  float* const row = dtable + entry * width;
  for (int64_t first = mine; first < positions; first += kThreads) {
    const int64_t position = first + threadIdx.x;
    found[threadIdx.x] = position < positions && has_entry(position);
    if (__syncthreads_or(found[threadIdx.x] ? 1 : 0) != 0) {
      for (int64_t i = threadIdx.x; i < width; i += kThreads) {
        float sum = row[i];
        for (int j = 0; j < kThreads; ++j) {
          if (found[j]) sum += dy[(first + j) * width + i];
        }
        row[i] = sum;
      }
    }
    __syncthreads();
  }
}

class Embedding final : public RowKernel {
 public:
  Embedding(const EmbeddingOptions& options, const KernelContext& context)
      : options_(options),
        context_(context),
        report_(*context.allocator, sizeof(uint64_t)),
        seen_report_(*context.pinned, sizeof(uint64_t)),
        check_{.report = seen_report_.as<uint64_t>(),
               .positions = options.positions,
               .entries = options.entries} {
    *seen_report_.as<uint64_t>() = NumberChecks::kNone;
    LOCKSTEP_CUDA(cudaMemsetAsync(report_.data(), 0xff, report_.bytes(), context.stream));
    context_.checks->Add(&check_);
  }
  ~Embedding() override { context_.checks->Remove(&check_); }

  void Bind(const Variables& variables) override { variables_ = variables; }

  void Forward(int64_t n, const float* x, float* y) override {
    LOCKSTEP_LAUNCH(TakeRows, static_cast<unsigned>(n * options_.positions), kThreads, 0, context_.stream,
                    options_.entries, options_.width, x, variables_.values[0], y,
                    report_.as<unsigned long long>());
    LOCKSTEP_CUDA(cudaMemcpyAsync(seen_report_.data(), report_.data(), report_.bytes(), cudaMemcpyDefault,
                                  context_.stream));
  }
  void Backward(int64_t n, const float* x, const float* dy, float* /*dx*/) override {
    float* const gradient = variables_.gradients[0];
    LOCKSTEP_CUDA(cudaMemsetAsync(gradient, 0,
                                  static_cast<size_t>(options_.entries * options_.width) * sizeof(float),
                                  context_.stream));
    const int64_t positions = n * options_.positions;
    LOCKSTEP_LAUNCH(AddRows, static_cast<unsigned>(positions), kThreads, 0, context_.stream, positions,
                    options_.entries, options_.width, x, dy, gradient);
  }

 private:
  const EmbeddingOptions options_;
  const KernelContext context_;
  Buffer report_, seen_report_;  // as NumberChecks has them; on the device, and as the host sees it
  const NumberChecks::Check check_;
  Variables variables_;
};

}  // namespace

std::unique_ptr<RowKernel> MakeEmbedding(const EmbeddingOptions& options, const KernelContext& context) {
  return std::make_unique<Embedding>(options, context);
}

}  // namespace lockstep::trainer::cuda
