#include "trainer/backend/cpu/dense.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <utility>

#include "trainer/error.h"

namespace lockstep::trainer::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

// A matrix product ready to run: the primitive and its arguments, whose addresses may change between
// executions. Executed through the C interface, because dnnl.hpp's execute() builds a map and a vector each
// time.
class Product {
 public:
  Product(Context& context, const dnnl::matmul::primitive_desc& descriptor, bool bias)
      : context_(context), primitive_(descriptor) {
    Add(DNNL_ARG_SRC, descriptor.src_desc());
    Add(DNNL_ARG_WEIGHTS, descriptor.weights_desc());
    Add(DNNL_ARG_DST, descriptor.dst_desc());
    Add(DNNL_ARG_SCRATCHPAD, descriptor.scratchpad_desc());
    if (bias) Add(DNNL_ARG_BIAS, descriptor.bias_desc());
    context.ReserveScratchpad(descriptor.scratchpad_desc().get_size());
  }

  void Run(const void* source, const void* weights, void* destination, const void* bias = nullptr) {
    Set(0, source);
    Set(1, weights);
    Set(2, destination);
    Set(3, context_.scratchpad());
    if (count_ == 5) Set(4, bias);
    const dnnl_status_t status =
        dnnl_primitive_execute(primitive_.get(), context_.stream().get(), count_, arguments_.data());
    if (status != dnnl_success) ThrowDnnlError("matrix product", dnnl::error(status, "execution failed"));
  }

 private:
  void Add(int argument, const memory::desc& descriptor) {
    memory& place = memories_[static_cast<size_t>(count_)];
    place = memory(descriptor, context_.engine(), DNNL_MEMORY_NONE);
    arguments_[static_cast<size_t>(count_++)] = {argument, place.get()};
  }
  void Set(size_t index, const void* data) {
    if (handles_[index] == data) return;
    handles_[index] = data;
    memories_[index].set_data_handle(const_cast<void*>(data));
  }

  Context& context_;
  dnnl::matmul primitive_;
  int count_ = 0;
  std::array<memory, 5> memories_;
  std::array<const void*, 5> handles_{};
  std::array<dnnl_exec_arg_t, 5> arguments_{};
};

// The three products for one batch size.
struct Plan {
  std::unique_ptr<Product> forward;
  std::unique_ptr<Product> backward_weights;
  std::unique_ptr<Product> backward_data;
};

// Kernels are kept row-major, [inputs, units], as Keras has them: oneDNN's products run as fast from it as
// from its own blocked layouts (docs/performance.md), it is the same for all batch sizes, and checkpoints
// need no reordering.
class Dense final : public DenseKernel {
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
    PlanFor(n).forward->Run(x, weights(), y, variables_.bias);
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
    if (dx != nullptr) plan.backward_data->Run(dy, weights(), dx);
    plan.backward_weights->Run(x, dy, variables_.dkernel);
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

  std::unique_ptr<Product> MakeProduct(const memory::desc& source, const memory::desc& weights,
                                       const memory::desc& destination) {
    return std::make_unique<Product>(
        context_,
        dnnl::matmul::primitive_desc({source, weights, destination}, Attributes(), context_.engine()), false);
  }

  static dnnl::primitive_attr Attributes() {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attributes;
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
    dnnl::primitive_attr attributes = Attributes();
    if (options_.relu) {
      dnnl::post_ops activation;
      activation.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
      attributes.set_post_ops(activation);
    }
    const memory::desc bias = options_.bias ? memory::desc({1, units}, f32, Tag::ab) : memory::desc();
    plan.forward = std::make_unique<Product>(
        context_,
        options_.bias ? dnnl::matmul::primitive_desc({x, kernel, bias, y}, attributes, context_.engine())
                      : dnnl::matmul::primitive_desc({x, kernel, y}, attributes, context_.engine()),
        options_.bias);
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

std::unique_ptr<DenseKernel> MakeDense(const DenseOptions& options, Context& context) {
  return std::make_unique<Dense>(options, context);
}

}  // namespace lockstep::trainer::cpu
