#include "trainer/backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "trainer/backend/cpu/context.h"
#include "trainer/backend/cpu/dense.h"
#include "trainer/backend/cpu/layer_kernels.h"
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
    if (op >= Op::kConv2D) {
      return {.reason = "layers other than Dense compute in Float32 in this version"};
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

  std::unique_ptr<ProductKernel> MakeDense(const DenseOptions& options) override {
    Require(Op::kDense, options.input);
    return cpu::MakeDense(options, context_);
  }

  std::unique_ptr<ProductKernel> MakeConv2D(const Conv2DOptions& options) override {
    return cpu::MakeConv2D(options, context_);
  }
  std::unique_ptr<FunctionKernel> MakeFunction(const FunctionOptions& options) override {
    struct Maker {
      Context& context;
      std::unique_ptr<FunctionKernel> operator()(const PoolOptions& pool) const {
        return cpu::MakePool(pool, context);
      }
      std::unique_ptr<FunctionKernel> operator()(const GlobalAveragePoolOptions& pool) const {
        return cpu::MakeGlobalAveragePool(pool, context);
      }
      std::unique_ptr<FunctionKernel> operator()(const LocalResponseOptions& response) const {
        return cpu::MakeLocalResponse(response, context);
      }
      std::unique_ptr<FunctionKernel> operator()(const ActivationOptions& activation) const {
        return cpu::MakeActivation(activation, context);
      }
    };
    return std::visit(Maker{context_}, options);
  }
  std::unique_ptr<BatchNormalizationKernel> MakeBatchNormalization(
      const BatchNormalizationOptions& options) override {
    return cpu::MakeBatchNormalization(options, context_);
  }
  std::unique_ptr<RowKernel> MakeLayerNormalization(const LayerNormalizationOptions& options) override {
    return cpu::MakeLayerNormalization(options, context_);
  }
  std::unique_ptr<RowKernel> MakeEmbedding(const EmbeddingOptions& options) override {
    return cpu::MakeEmbedding(options);
  }
  std::unique_ptr<DropoutKernel> MakeDropout(float rate, int64_t features) override {
    return cpu::MakeDropout(rate, features, context_);
  }
  void Add(int64_t count, const float* a, const float* b, bool relu, float* y) override {
    relu ? context_.loops().add_relu(count, a, b, y) : context_.loops().add(count, a, b, y);
  }
  void Copy(int64_t count, const float* from, float* to) override { std::copy_n(from, count, to); }
  void MaskGradient(int64_t count, const float* y, float* dy) override {
    context_.loops().mask_gradient(count, y, dy, dy);
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
    if (buffers.rates != nullptr) now.learning_rate = buffers.rates->rate;
    float* velocity = step.momentum != 0 ? buffers.slots[0] + begin : nullptr;
    context_.kernels().sgd(now, Prepare(buffers, &now.adjust), end - begin, buffers.parameters + begin,
                           buffers.gradients + begin, velocity);
  }

  void Adam(const AdamStep& step, const UpdateBuffers& buffers, int64_t begin, int64_t end) override {
    const ScopedFlushDenormals flush;
    AdamStep now = step;
    if (buffers.rates != nullptr) now.alpha = buffers.rates->rate;
    context_.kernels().adam(now, Prepare(buffers, &now.adjust), end - begin, buffers.parameters + begin,
                            buffers.gradients + begin, buffers.slots[0] + begin, buffers.slots[1] + begin);
  }

  void MoveAverage(float keep, const StepRates* rates, const float* parameters, float* average, int64_t begin,
                   int64_t end) override {
    const ScopedFlushDenormals flush;
    context_.kernels().move_average(rates != nullptr ? rates->keep : keep, end - begin, parameters + begin,
                                    average + begin);
  }

  void Accumulate(float factor, const float* from, float* to, int64_t count) override {
    context_.kernels().accumulate(factor, count, from, to);
  }

  double SumOfSquares(const float* data, int64_t count) override {
    return context_.kernels().sum_of_squares(count, data);
  }

 private:
  // What lies in memory becomes part of `adjust`; returns the scale of the gradients.
  static float Prepare(const UpdateBuffers& buffers, Adjustments* adjust) {
    if (buffers.rates != nullptr) adjust->decay = buffers.rates->decay;
    if (adjust->norm_limit == 0) return 1;
    const double norm = std::sqrt(*buffers.squared_norm);
    if (norm <= adjust->norm_limit) return 1;
    return static_cast<float>(adjust->norm_limit / norm + (norm - norm));
  }

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
