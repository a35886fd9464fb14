#include "trainer/backend/cpu/dense.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "trainer/backend/cpu/primitive.h"

namespace lockstep::trainer::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

constexpr char kWhat[] = "matrix product";

// The three products for one batch size.
struct Plan {
  std::unique_ptr<Primitive> forward;
  std::unique_ptr<Primitive> backward_weights;
  std::unique_ptr<Primitive> backward_data;
};

// Kernels are kept row-major, [inputs, units], as Keras has them: oneDNN's products run as fast from it as
// from its own blocked layouts (docs/performance.md), it is the same for all batch sizes, and checkpoints
// need no reordering.
class Dense final : public ProductKernel {
 public:
  Dense(const DenseOptions& options, Context& context) : options_(options), context_(context) {
    if (options.input == DataType::kBFloat16) {
      copy_ = Buffer(HostAllocator(), static_cast<size_t>(stored_size()) * sizeof(BFloat16));
    }
    PlanFor(options.max_batch);
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
    if (copy_.data() == nullptr) return;
    context_.kernels().to_bfloat16(end - begin, variables_.kernel + begin, copy_.as<BFloat16>() + begin);
  }

  void Forward(int64_t n, const void* x, void* y) override {
    const ScopedFlushDenormals flush;
    PlanFor(n).forward->Run({x, weights(), y, variables_.bias});
  }

  void Backward(int64_t n, const void* x, const void* y, void* dy, void* dx) override {
    const ScopedFlushDenormals flush;
    Plan& plan = PlanFor(n);
    const void* mask = options_.relu ? y : nullptr;
    if (options_.input == DataType::kBFloat16) {
      if (mask != nullptr && options_.output == DataType::kFloat32) mask = Narrowed(n * options_.units, y);
      context_.kernels().activation_backward_bf16(n, options_.units, static_cast<const BFloat16*>(mask),
                                                  static_cast<BFloat16*>(dy), variables_.dbias);
    } else {
      context_.kernels().activation_backward_f32(n, options_.units, static_cast<const float*>(mask),
                                                 static_cast<float*>(dy), variables_.dbias);
    }
    if (dx != nullptr) plan.backward_data->Run({dy, weights(), dx});
    plan.backward_weights->Run({x, dy, variables_.dkernel});
  }

 private:
  // Outputs in the type of their gradients, which does not change their signs.
  const void* Narrowed(int64_t count, const void* y) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(BFloat16);
    if (narrow_outputs_.bytes() < bytes) narrow_outputs_ = Buffer(HostAllocator(), bytes);
    context_.kernels().to_bfloat16(count, static_cast<const float*>(y), narrow_outputs_.as<BFloat16>());
    return narrow_outputs_.data();
  }

  const void* weights() const {
    return copy_.data() != nullptr ? copy_.data() : static_cast<const void*>(variables_.kernel);
  }

  Plan& PlanFor(int64_t n) {
    if (last_plan_ != nullptr && n == last_size_) return *last_plan_;
    auto found = plans_.find(n);
    if (found == plans_.end()) {
      const std::string what =
          "Dense [" + std::to_string(options_.inputs) + ", " + std::to_string(options_.units) + "] in " +
          std::string(DataTypeName(options_.input)) + " for a batch of " + std::to_string(n);
      found = plans_.emplace(n, Guard(what, [&] { return MakePlan(n); })).first;
    }
    last_size_ = n;
    last_plan_ = &found->second;
    return *last_plan_;
  }

  std::unique_ptr<Primitive> MakeProduct(const memory::desc& source, const memory::desc& weights,
                                         const memory::desc& destination) {
    const dnnl::matmul::primitive_desc product({source, weights, destination}, PlainAttributes(),
                                               context_.engine());
    return std::make_unique<Primitive>(
        context_, kWhat, dnnl::matmul(product), product.scratchpad_desc(),
        std::initializer_list<Primitive::Argument>{
            {DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, destination}});
  }

  Plan MakePlan(int64_t n) {
    const int64_t inputs = options_.inputs;
    const int64_t units = options_.units;
    const auto type = DnnlType(options_.input);
    const auto f32 = memory::data_type::f32;
    const memory::desc x({n, inputs}, type, Tag::ab);
    const memory::desc kernel({inputs, units}, type, Tag::ab);
    const memory::desc y({n, units}, DnnlType(options_.output), Tag::ab);
    const memory::desc dy({n, units}, type, Tag::ab);

    Plan plan;
    dnnl::primitive_attr attributes = PlainAttributes();
    if (options_.relu) {
      dnnl::post_ops activation;
      activation.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
      attributes.set_post_ops(activation);
    }
    const memory::desc bias = options_.bias ? memory::desc({1, units}, f32, Tag::ab) : memory::desc();
    const dnnl::matmul::primitive_desc forward({x, kernel, bias, y}, attributes, context_.engine());
    plan.forward = std::make_unique<Primitive>(
        context_, kWhat, dnnl::matmul(forward), forward.scratchpad_desc(),
        std::initializer_list<Primitive::Argument>{
            {DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, kernel}, {DNNL_ARG_DST, y}, {DNNL_ARG_BIAS, bias}});
    plan.backward_weights = MakeProduct(memory::desc({inputs, n}, type, Tag::ba), dy,
                                        memory::desc({inputs, units}, f32, Tag::ab));
    if (options_.input_gradient) {
      plan.backward_data = MakeProduct(dy, memory::desc({units, inputs}, type, Tag::ba), x);
    }
    return plan;
  }

  const DenseOptions options_;
  Context& context_;
  Variables variables_;
  Buffer copy_;  // of the kernel, in the type of the products; empty where that is float32
  Buffer narrow_outputs_;
  std::unordered_map<int64_t, Plan> plans_;
  int64_t last_size_ = -1;
  Plan* last_plan_ = nullptr;
};

}  // namespace

std::unique_ptr<ProductKernel> MakeDense(const DenseOptions& options, Context& context) {
  return std::make_unique<Dense>(options, context);
}

}  // namespace lockstep::trainer::cpu
