#include "trainer/backend/cuda/dense.h"

#include <algorithm>
#include <array>
#include <map>

#include "trainer/backend/cuda/check.h"
#include "trainer/backend/cuda/dense_kernels.h"
#include "trainer/backend/cuda/matmul.h"

namespace lockstep::trainer::cuda {
namespace {

// The products of one batch size.
struct Plan {
  std::unique_ptr<Matmul> forward;
  std::unique_ptr<Matmul> backward_weights;
  std::unique_ptr<Matmul> backward_data;
};

// In bytes, what all of the pointers are multiples of, up to that of a variable in the flat buffers. More
// than 16 makes no difference to any instruction, but cuBLASLt prefers to hear of it.
template <typename... Pointers>
size_t CommonAlignment(Pointers... pointers) {
  const uintptr_t bits = (kBufferAlignment | ... | reinterpret_cast<uintptr_t>(pointers));
  return bits & (~bits + 1);
}

// Kernels are kept row-major, [inputs, units], as Keras has them.
class Dense final : public ProductKernel {
 public:
  Dense(const DenseOptions& options, const KernelContext& context) : options_(options), context_(context) {
    const bool narrow_products = options.input == DataType::kBFloat16;
    const bool narrow_bias = options.bias && options.output == DataType::kBFloat16;
    if (narrow_products) kernel_copy_ = NarrowBuffer(stored_size());
    if (narrow_bias) bias_copy_ = NarrowBuffer(options.units);
    if (options.bias) scratch_ = {options.max_batch, options.units, context};
  }

  int64_t stored_size() const override { return options_.inputs * options_.units; }
  void FromCanonical(const float* canonical, float* stored) const override {
    std::copy_n(canonical, stored_size(), stored);
  }
  void ToCanonical(const float* stored, float* canonical) const override {
    std::copy_n(stored, stored_size(), canonical);
  }

  void Bind(const Variables& variables) override { variables_ = variables; }

  void KernelChanged(int64_t begin, int64_t end) override {
    if (kernel_copy_.data() == nullptr) return;
    RoundToBFloat16(variables_.kernel, kernel_copy_.as<BFloat16>(), begin, end, context_);
  }

  void BiasChanged(int64_t begin, int64_t end) override {
    if (bias_copy_.data() == nullptr) return;
    RoundToBFloat16(variables_.bias, bias_copy_.as<BFloat16>(), begin, end, context_);
  }

  Rounded rounded() const override { return {kernel_copy_.as<BFloat16>(), bias_copy_.as<BFloat16>()}; }

  void Forward(int64_t n, const void* x, void* y) override {
    PlanFor(n, CommonAlignment(x, y, weights(), bias(), variables_.dkernel))
        .forward->Run(x, weights(), y, bias());
  }

  void Backward(int64_t n, const void* x, const void* y, void* dy, void* dx) override {
    Plan& plan = PlanFor(n, CommonAlignment(x, dy, dx, weights(), bias(), variables_.dkernel));
    BackwardActivationOf(n, options_.relu ? y : nullptr, dy);
    if (dx != nullptr) plan.backward_data->Run(dy, weights(), dx);
    plan.backward_weights->Run(x, dy, variables_.dkernel);
  }

 private:
  Buffer NarrowBuffer(int64_t count) const {
    return {*context_.allocator, static_cast<size_t>(count) * sizeof(BFloat16)};
  }

  const void* weights() const {
    return kernel_copy_.data() != nullptr ? kernel_copy_.data() : static_cast<const void*>(variables_.kernel);
  }
  const void* bias() const {
    return bias_copy_.data() != nullptr ? bias_copy_.data() : static_cast<const void*>(variables_.bias);
  }

  void BackwardActivationOf(int64_t n, const void* y, void* dy) {
    const auto run = [&](const auto* outputs, auto* gradients) {
      BackwardActivation(n, options_.units, outputs, gradients, variables_.dbias, scratch_.get(), context_);
    };
    if (options_.input == DataType::kFloat32) {
      run(static_cast<const float*>(y), static_cast<float*>(dy));
    } else if (options_.output == DataType::kFloat32) {
      run(static_cast<const float*>(y), static_cast<BFloat16*>(dy));
    } else {
      run(static_cast<const BFloat16*>(y), static_cast<BFloat16*>(dy));
    }
  }

  Plan& PlanFor(int64_t n, size_t alignment) {
    const auto [found, is_new] = plans_.try_emplace({n, alignment});
    if (is_new) {
      try {
        found->second = MakePlan(n, alignment);
      } catch (...) {
        plans_.erase(found);
        throw;
      }
    }
    return found->second;
  }

  Plan MakePlan(int64_t n, size_t alignment) {
    const auto make = [&](MatmulOptions options) {
      options.tf32 = options_.tf32;
      options.alignment = alignment;
      return std::make_unique<Matmul>(options, context_);
    };
    const Matrix x{.rows = n, .columns = options_.inputs, .type = options_.input};
    const Matrix kernel{.rows = options_.inputs, .columns = options_.units, .type = options_.input};
    const Matrix dy{.rows = n, .columns = options_.units, .type = options_.input};
    Plan plan;
    plan.forward =
        make({.a = x, .b = kernel, .output = options_.output, .bias = options_.bias, .relu = options_.relu});
    plan.backward_weights = make({.a = x, .b = dy, .output = DataType::kFloat32, .transpose_a = true});
    if (options_.input_gradient) {
      plan.backward_data = make({.a = dy, .b = kernel, .output = options_.input, .transpose_b = true});
    }
    return plan;
  }

  const DenseOptions options_;
  const KernelContext context_;
  Variables variables_;
  Buffer kernel_copy_;  // in the type of the products; empty where that is float32
  Buffer bias_copy_;    // in the type of y, as cuBLASLt wants it; empty where that is float32
  BackwardScratchMemory scratch_;
  std::map<std::pair<int64_t, size_t>, Plan> plans_;  // by batch size and alignment
};

}  // namespace

std::unique_ptr<ProductKernel> MakeDense(const DenseOptions& options, const KernelContext& context) {
  return std::make_unique<Dense>(options, context);
}

}  // namespace lockstep::trainer::cuda
