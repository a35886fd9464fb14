#include <string>
#include <unordered_map>

#include "trainer/backend/cpu/layer_kernels.h"
#include "trainer/backend/cpu/primitive.h"

namespace lockstep::trainer::cpu {
namespace {

using dnnl::memory;
constexpr auto kF32 = memory::data_type::f32;
constexpr auto kNhwc = memory::format_tag::nhwc;

// For one batch size.
struct Plan {
  std::unique_ptr<Primitive> forward, backward;
  size_t workspace_bytes = 0;  // where each maximum was
};

class Pool final : public FunctionKernel {
 public:
  Pool(const PoolOptions& options, Context& context) : options_(options), context_(context) {}

  size_t saved_bytes(int64_t n) const override { return PlanFor(n).workspace_bytes; }
  void Forward(int64_t n, const float* x, float* y, void* saved) override {
    const ScopedFlushDenormals flush;
    PlanFor(n).forward->Run({x, y, saved});
  }
  void Backward(int64_t n, const float* /*x*/, const float* /*y*/, const void* saved, float* dy,
                float* dx) override {
    const ScopedFlushDenormals flush;
    PlanFor(n).backward->Run({dy, dx, saved});
  }

 private:
  static constexpr char kWhat[] = "pooling";

  Plan& PlanFor(int64_t n) const {
    auto found = plans_.find(n);
    if (found == plans_.end()) {
      found = plans_.emplace(n, Guard(kWhat, [&] { return MakePlan(n); })).first;
    }
    return found->second;
  }

  Plan MakePlan(int64_t n) const {
    const ImageShape &in = options_.input, &out = options_.output;
    const Window& window = options_.window;
    const memory::desc x({n, in.channels, in.height, in.width}, kF32, kNhwc);
    const memory::desc y({n, out.channels, out.height, out.width}, kF32, kNhwc);
    const memory::dims strides{window.stride_height, window.stride_width};
    const memory::dims extent{window.height, window.width};
    const memory::dims before{window.pad_top, window.pad_left};
    const memory::dims after{
        (out.height - 1) * window.stride_height + window.height - in.height - window.pad_top,
        (out.width - 1) * window.stride_width + window.width - in.width - window.pad_left};
    const auto kind =
        options_.maximum ? dnnl::algorithm::pooling_max : dnnl::algorithm::pooling_avg_exclude_padding;
    const dnnl::pooling_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, kind, x, y, strides, extent, before, after}, PlainAttributes(),
        context_.engine());
    const dnnl::pooling_backward::primitive_desc backward({kind, x, y, strides, extent, before, after},
                                                          PlainAttributes(), context_.engine(), forward);
    const memory::desc workspace = options_.maximum ? forward.workspace_desc() : memory::desc();
    using Arguments = std::initializer_list<Primitive::Argument>;
    Plan plan;
    plan.workspace_bytes = workspace.get_size();
    plan.forward = std::make_unique<Primitive>(
        context_, kWhat, dnnl::pooling_forward(forward), forward.scratchpad_desc(),
        Arguments{{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}, {DNNL_ARG_WORKSPACE, workspace}});
    plan.backward = std::make_unique<Primitive>(
        context_, kWhat, dnnl::pooling_backward(backward), backward.scratchpad_desc(),
        Arguments{{DNNL_ARG_DIFF_DST, y}, {DNNL_ARG_DIFF_SRC, x}, {DNNL_ARG_WORKSPACE, workspace}});
    return plan;
  }

  const PoolOptions options_;
  Context& context_;
  mutable std::unordered_map<int64_t, Plan> plans_;
};

}  // namespace

std::unique_ptr<FunctionKernel> MakePool(const PoolOptions& options, Context& context) {
  return std::make_unique<Pool>(options, context);
}

}  // namespace lockstep::trainer::cpu
