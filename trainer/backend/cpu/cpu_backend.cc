#include "trainer/backend/cpu/cpu_backend.h"

#include <cstring>
#include <string>

#include "trainer/backend/cpu/context.h"
#include "trainer/backend/cpu/dense.h"
#include "trainer/backend/cpu/loss.h"
#include "trainer/backend/cpu/vector_kernels.h"
#include "trainer/error.h"

namespace lockstep::trainer::cpu {
namespace {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int threads) : context_(threads) {}

  std::string_view name() const override { return "CPU"; }
  std::string description() const override { return context_.description(); }

  Support Supports(Op op, DataType type) const override {
    if (type == DataType::kFloat32 || (type == DataType::kInt32 && op == Op::kMatMul)) {
      return {.supported = true, .native = true, .reason = ""};
    }
    if (op == Op::kMatMul) return {.reason = "products placed by hand are of Float32 or Int32"};
    if (type != DataType::kBFloat16) {
      return {.reason = std::string(DataTypeName(type)) + " is a type of data and labels, not of arithmetic"};
    }
    if (op == Op::kSgd || op == Op::kAdam) {
      return {.reason = "parameters and optimizer state are Float32, in every precision"};
    }
    // Losses are computed in float32; only the products care.
    const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
    if (!HasAvx512(isa)) {
      return {.reason = "BFloat16 needs AVX-512, which this processor lacks"};
    }
    if (isa == dnnl::cpu_isa::avx512_core || isa == dnnl::cpu_isa::avx512_core_vnni) {
      return {.supported = true,
              .native = false,
              .reason =
                  "this processor has AVX-512 without BF16: products of BFloat16 are emulated and slower "
                  "than Float32"};
    }
    return {.supported = true, .native = true, .reason = ""};
  }

  Allocator& allocator() override { return HostAllocator(); }
  // (The pointers of nothing may be null, which the C library does not allow.)
  void Upload(void* to, const void* from_host, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from_host, bytes);
  }
  void Download(void* to_host, const void* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to_host, from, bytes);
  }
  void Zero(void* data, size_t bytes) override {
    if (bytes > 0) std::memset(data, 0, bytes);
  }
  void Synchronize() override {}

  std::unique_ptr<DenseKernel> MakeDense(const DenseOptions& options) override {
    Require(Op::kDense, options.input);
    return cpu::MakeDense(options, context_);
  }

  void MatMul(DataType type, int64_t m, int64_t n, int64_t k, const void* a, const void* b,
              void* c) override {
    if (type != DataType::kInt32) return Backend::MatMul(type, m, n, k, a, b, c);
    // Wraps around where it overflows, as TensorFlow's does.
    const auto* left = static_cast<const uint32_t*>(a);
    const auto* right = static_cast<const uint32_t*>(b);
    auto* product = static_cast<uint32_t*>(c);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        uint32_t sum = 0;
        for (int64_t l = 0; l < k; ++l) sum += left[i * k + l] * right[l * n + j];
        product[i * n + j] = sum;
      }
    }
  }

  std::unique_ptr<LossKernel> MakeLoss(const LossOptions& options) override {
    Require(options.kind == LossKind::kMeanSquaredError ? Op::kMeanSquaredError : Op::kSoftmaxCrossEntropy,
            options.output_gradient);
    return cpu::MakeLoss(options, context_.kernels());
  }

  void Sgd(const SgdStep& step, const UpdateBuffers& buffers, int64_t begin, int64_t end) override {
    const ScopedFlushDenormals flush;
    SgdStep now = step;
    if (buffers.rate != nullptr) now.learning_rate = *buffers.rate;
    float* velocity = step.momentum != 0 ? buffers.slots[0] + begin : nullptr;
    context_.kernels().sgd(now, end - begin, buffers.parameters + begin, buffers.gradients + begin, velocity);
  }

  void Adam(const AdamStep& step, const UpdateBuffers& buffers, int64_t begin, int64_t end) override {
    const ScopedFlushDenormals flush;
    AdamStep now = step;
    if (buffers.rate != nullptr) now.alpha = *buffers.rate;
    context_.kernels().adam(now, end - begin, buffers.parameters + begin, buffers.gradients + begin,
                            buffers.slots[0] + begin, buffers.slots[1] + begin);
  }

  double SumOfSquares(const float* data, int64_t count) override {
    return context_.kernels().sum_of_squares(count, data);
  }

 private:
  static bool HasAvx512(dnnl::cpu_isa isa) {
    switch (isa) {
      case dnnl::cpu_isa::avx512_core:
      case dnnl::cpu_isa::avx512_core_vnni:
      case dnnl::cpu_isa::avx512_core_bf16:
      case dnnl::cpu_isa::avx512_core_amx:
        return true;
      default:
        return false;
    }
  }

  Context context_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(int threads) { return std::make_unique<CpuBackend>(threads); }

}  // namespace lockstep::trainer::cpu
