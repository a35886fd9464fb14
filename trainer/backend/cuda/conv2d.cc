#include "trainer/backend/cuda/conv2d.h"

#include <array>
#include <string>
#include <type_traits>
#include <unordered_map>

#include "trainer/backend/cuda/conv2d_kernels.h"
#include "trainer/backend/cuda/dense_kernels.h"
#include "trainer/error.h"

namespace lockstep::trainer::cuda {
namespace {

using Tensor = std::unique_ptr<std::remove_pointer_t<cudnnTensorDescriptor_t>,
                               decltype(&::cudnnDestroyTensorDescriptor)>;
using Filter = std::unique_ptr<std::remove_pointer_t<cudnnFilterDescriptor_t>,
                               decltype(&::cudnnDestroyFilterDescriptor)>;
using Convolution = std::unique_ptr<std::remove_pointer_t<cudnnConvolutionDescriptor_t>,
                                    decltype(&::cudnnDestroyConvolutionDescriptor)>;
using ActivationDescription = std::unique_ptr<std::remove_pointer_t<cudnnActivationDescriptor_t>,
                                              decltype(&::cudnnDestroyActivationDescriptor)>;

// What pointers given to cuDNN are multiples of: its kernels load 16 bytes at a time.
constexpr uintptr_t kAlignment = 16;

// One of the three convolutions of a layer, and how it is to be done.
template <typename Performance>
struct Chosen {
  Convolution convolution{nullptr, nullptr};
  Performance how{};
};

// For one batch size.
struct Plan {
  Tensor x{nullptr, nullptr}, y{nullptr, nullptr};
  Chosen<cudnnConvolutionFwdAlgoPerf_t> forward;
  Chosen<cudnnConvolutionBwdDataAlgoPerf_t> backward_data;
  Chosen<cudnnConvolutionBwdFilterAlgoPerf_t> backward_filter;
  bool fused = false;  // bias and activation are cuDNN's
};

// Images are channels-last, as everywhere, and so is the kernel: [filters, height, width, channels], where
// Keras has the filters last. cuDNN pads alike on both sides: where the layer does not, the images are put
// into frames of zeros first.
class Conv2D final : public ProductKernel {
 public:
  Conv2D(const Conv2DOptions& options, CudnnSession& cudnn, const KernelContext& context)
      : options_(options),
        cudnn_(cudnn.functions()),
        handle_(cudnn.Handle(context.stream)),
        context_(context),
        frame_{.image = options.input, .framed = options.input},
        padding_{options.window.pad_top, options.window.pad_left} {
    const Window& window = options.window;
    if (!PadsAlike()) {
      const ImageShape& out = options.output;
      frame_.framed.height = (out.height - 1) * window.stride_height + window.height;
      frame_.framed.width = (out.width - 1) * window.stride_width + window.width;
      frame_.top = window.pad_top;
      frame_.left = window.pad_left;
      padding_[0] = padding_[1] = 0;
      framed_ = true;
      MakeRoomForFrames(options.max_batch);
    }
    if (options.bias) scratch_ = {options.max_batch * options.output.pixels(), filters(), context};
    kernel_ = MakeKernel();
    bias_ = MakeTensor(1, {.height = 1, .width = 1, .channels = filters()});
    activation_ = MakeActivation();
    PlanFor(options.max_batch);
  }

  int64_t stored_size() const override {
    return options_.window.height * options_.window.width * options_.input.channels * filters();
  }
  void FromCanonical(const float* canonical, float* stored) const override {
    ForEachWeight([&](int64_t ours, int64_t keras) { stored[ours] = canonical[keras]; });
  }
  void ToCanonical(const float* stored, float* canonical) const override {
    ForEachWeight([&](int64_t ours, int64_t keras) { canonical[keras] = stored[ours]; });
  }
  void Bind(const Variables& variables) override { variables_ = variables; }
  void KernelChanged(int64_t /*begin*/, int64_t /*end*/) override {}

  void Forward(int64_t n, const void* x, void* y) override {
    Plan& plan = PlanFor(n);
    const void* const images = Images(n, x);
    if (plan.fused && ForwardFused(plan, images, y)) return;
    constexpr float kOne = 1, kZero = 0;
    LOCKSTEP_CUDNN(cudnn_, cudnnConvolutionForward(handle_, &kOne, plan.x.get(), images, kernel_.get(),
                                                   variables_.kernel, plan.forward.convolution.get(),
                                                   plan.forward.how.algo, context_.workspace,
                                                   context_.workspace_bytes, &kZero, plan.y.get(), y));
    if (options_.bias || options_.relu) {
      AddBias(n * options_.output.pixels(), filters(), variables_.bias, options_.relu, static_cast<float*>(y),
              context_);
    }
  }

  void Backward(int64_t n, const void* x, const void* y, void* dy, void* dx) override {
    Plan& plan = PlanFor(n);
    BackwardActivation(n * options_.output.pixels(), filters(),
                       options_.relu ? static_cast<const float*>(y) : nullptr, static_cast<float*>(dy),
                       variables_.dbias, scratch_.get(), context_);
    constexpr float kOne = 1, kZero = 0;
    if (dx != nullptr) {
      void* const into = framed_ ? frames_.data() : dx;
      LOCKSTEP_CUDNN(cudnn_, cudnnConvolutionBackwardData(
                                 handle_, &kOne, kernel_.get(), variables_.kernel, plan.y.get(), dy,
                                 plan.backward_data.convolution.get(), plan.backward_data.how.algo,
                                 context_.workspace, context_.workspace_bytes, &kZero, plan.x.get(), into));
      if (framed_) TakeFromFrame(frame_, n, frames_.as<float>(), static_cast<float*>(dx), context_);
    }
    const void* const images = Images(n, x);
    LOCKSTEP_CUDNN(cudnn_, cudnnConvolutionBackwardFilter(handle_, &kOne, plan.x.get(), images, plan.y.get(),
                                                          dy, plan.backward_filter.convolution.get(),
                                                          plan.backward_filter.how.algo, context_.workspace,
                                                          context_.workspace_bytes, &kZero, kernel_.get(),
                                                          variables_.dkernel));
  }

 private:
  int64_t filters() const { return options_.output.channels; }

  // Whether as many zeros on the other side as on this one come to the same outputs: what is left over there
  // counts for nothing.
  bool PadsAlike() const {
    const Window& window = options_.window;
    const auto outputs = [](int64_t extent, int64_t padding, int64_t of_window, int64_t stride) {
      const int64_t room = extent + 2 * padding - of_window;
      return room < 0 ? 0 : room / stride + 1;
    };
    return outputs(options_.input.height, window.pad_top, window.height, window.stride_height) ==
               options_.output.height &&
           outputs(options_.input.width, window.pad_left, window.width, window.stride_width) ==
               options_.output.width;
  }

  void MakeRoomForFrames(int64_t n) {
    const size_t bytes = static_cast<size_t>(n * frame_.framed.features()) * sizeof(float);
    if (frames_.bytes() < bytes) frames_ = Buffer(*context_.allocator, bytes);
  }

  // x as cuDNN takes it. (A part of a batch may begin anywhere.)
  const void* Images(int64_t n, const void* x) {
    if (!framed_ && reinterpret_cast<uintptr_t>(x) % kAlignment == 0) return x;
    MakeRoomForFrames(options_.max_batch);
    PutIntoFrame(frame_, n, static_cast<const float*>(x), frames_.as<float>(), context_);
    return frames_.data();
  }

  // False where cuDNN does not do it in one, this time or ever.
  bool ForwardFused(Plan& plan, const void* images, void* y) {
    constexpr float kOne = 1, kZero = 0;
    const cudnnStatus_t status = cudnn_.cudnnConvolutionBiasActivationForward(
        handle_, &kOne, plan.x.get(), images, kernel_.get(), variables_.kernel,
        plan.forward.convolution.get(), plan.forward.how.algo, context_.workspace, context_.workspace_bytes,
        &kZero, plan.y.get(), y, bias_.get(), variables_.bias, activation_.get(), plan.y.get(), y);
    if (CUDNN_STATUS_CATEGORY(static_cast<int>(status)) == CUDNN_STATUS_NOT_SUPPORTED) {
      plan.fused = false;
      return false;
    }
    cudnn_.Check(status, "cudnnConvolutionBiasActivationForward", __FILE__, __LINE__);
    return true;
  }

  // Calls `visit(place in our order, place in Keras')`.
  template <typename Visit>
  void ForEachWeight(Visit&& visit) const {
    const int64_t positions = options_.window.height * options_.window.width;
    const int64_t channels = options_.input.channels;
    for (int64_t f = 0; f < filters(); ++f) {
      for (int64_t p = 0; p < positions; ++p) {
        for (int64_t c = 0; c < channels; ++c) {
          visit((f * positions + p) * channels + c, (p * channels + c) * filters() + f);
        }
      }
    }
  }

  Tensor MakeTensor(int64_t n, const ImageShape& image) const {
    cudnnTensorDescriptor_t made = nullptr;
    LOCKSTEP_CUDNN(cudnn_, cudnnCreateTensorDescriptor(&made));
    Tensor tensor(made, cudnn_.cudnnDestroyTensorDescriptor);
    LOCKSTEP_CUDNN(
        cudnn_, cudnnSetTensor4dDescriptor(made, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, static_cast<int>(n),
                                           static_cast<int>(image.channels), static_cast<int>(image.height),
                                           static_cast<int>(image.width)));
    return tensor;
  }

  Filter MakeKernel() const {
    cudnnFilterDescriptor_t made = nullptr;
    LOCKSTEP_CUDNN(cudnn_, cudnnCreateFilterDescriptor(&made));
    Filter filter(made, cudnn_.cudnnDestroyFilterDescriptor);
    LOCKSTEP_CUDNN(cudnn_, cudnnSetFilter4dDescriptor(made, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC,
                                                      static_cast<int>(filters()),
                                                      static_cast<int>(options_.input.channels),
                                                      static_cast<int>(options_.window.height),
                                                      static_cast<int>(options_.window.width)));
    return filter;
  }

  ActivationDescription MakeActivation() const {
    cudnnActivationDescriptor_t made = nullptr;
    LOCKSTEP_CUDNN(cudnn_, cudnnCreateActivationDescriptor(&made));
    ActivationDescription activation(made, cudnn_.cudnnDestroyActivationDescriptor);
    const auto kind = options_.relu ? CUDNN_ACTIVATION_RELU : CUDNN_ACTIVATION_IDENTITY;
    LOCKSTEP_CUDNN(cudnn_, cudnnSetActivationDescriptor(made, kind, CUDNN_NOT_PROPAGATE_NAN, 0));
    return activation;
  }

  // (CUDNN_DEFAULT_MATH rounds Float32 to TF32 where the device can.)
  Convolution MakeConvolution() const {
    const Window& window = options_.window;
    cudnnConvolutionDescriptor_t made = nullptr;
    LOCKSTEP_CUDNN(cudnn_, cudnnCreateConvolutionDescriptor(&made));
    Convolution convolution(made, cudnn_.cudnnDestroyConvolutionDescriptor);
    LOCKSTEP_CUDNN(cudnn_, cudnnSetConvolution2dDescriptor(
                               made, static_cast<int>(padding_[0]), static_cast<int>(padding_[1]),
                               static_cast<int>(window.stride_height), static_cast<int>(window.stride_width),
                               1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    LOCKSTEP_CUDNN(cudnn_,
                   cudnnSetConvolutionMathType(made, options_.tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH));
    return convolution;
  }

  // The best of those that cuDNN proposes that gives the same bits each time, in the workspace there is.
  // `ask(convolution, most, &found, results)`.
  template <typename Performance, typename Ask>
  Chosen<Performance> Choose(Ask&& ask) const {
    Chosen<Performance> chosen{.convolution = MakeConvolution()};
    std::array<Performance, CUDNN_CONVOLUTION_FWD_ALGO_COUNT> proposed{};
    int found = 0;
    cudnn_.Check(ask(chosen.convolution.get(), static_cast<int>(proposed.size()), &found, proposed.data()),
                 "choosing an algorithm for a convolution", __FILE__, __LINE__);
    for (int i = 0; i < found; ++i) {
      const Performance& one = proposed[static_cast<size_t>(i)];
      if (one.status != CUDNN_STATUS_SUCCESS || one.determinism != CUDNN_DETERMINISTIC ||
          one.memory > context_.workspace_bytes) {
        continue;
      }
      chosen.how = one;
      if (options_.tf32) {
        LOCKSTEP_CUDNN(cudnn_, cudnnSetConvolutionMathType(chosen.convolution.get(), one.mathType));
      }
      return chosen;
    }
    throw Unsupported(What() + " on " + context_.device +
                      ": cuDNN has no deterministic algorithm for it that works in " +
                      std::to_string(context_.workspace_bytes >> 20) + " MiB");
  }

  std::string What() const {
    const Window& window = options_.window;
    return "Conv2D [" + std::to_string(window.height) + ", " + std::to_string(window.width) + ", " +
           std::to_string(options_.input.channels) + ", " + std::to_string(filters()) + "]";
  }

  Plan& PlanFor(int64_t n) {
    const auto found = plans_.find(n);
    return found != plans_.end() ? found->second : plans_.emplace(n, MakePlan(n)).first->second;
  }

  Plan MakePlan(int64_t n) const {
    Plan plan;
    plan.x = MakeTensor(n, frame_.framed);
    plan.y = MakeTensor(n, options_.output);
    plan.forward = Choose<cudnnConvolutionFwdAlgoPerf_t>([&](auto* convolution, auto... results) {
      return cudnn_.cudnnGetConvolutionForwardAlgorithm_v7(handle_, plan.x.get(), kernel_.get(), convolution,
                                                           plan.y.get(), results...);
    });
    // Without an activation there is but one that adds a bias (cuDNN's documentation of
    // cudnnConvolutionBiasActivationForward).
    plan.fused = options_.bias &&
                 (options_.relu || plan.forward.how.algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
    plan.backward_filter =
        Choose<cudnnConvolutionBwdFilterAlgoPerf_t>([&](auto* convolution, auto... results) {
          return cudnn_.cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle_, plan.x.get(), plan.y.get(),
                                                                      convolution, kernel_.get(), results...);
        });
    if (!options_.input_gradient) return plan;
    plan.backward_data = Choose<cudnnConvolutionBwdDataAlgoPerf_t>([&](auto* convolution, auto... results) {
      return cudnn_.cudnnGetConvolutionBackwardDataAlgorithm_v7(handle_, kernel_.get(), plan.y.get(),
                                                                convolution, plan.x.get(), results...);
    });
    return plan;
  }

  const Conv2DOptions options_;
  const Cudnn& cudnn_;
  const cudnnHandle_t handle_;
  const KernelContext context_;
  Frame frame_;
  int64_t padding_[2];
  bool framed_ = false;
  Buffer frames_;
  BackwardScratchMemory scratch_;
  Filter kernel_{nullptr, nullptr};
  Tensor bias_{nullptr, nullptr};
  ActivationDescription activation_{nullptr, nullptr};
  Variables variables_;
  std::unordered_map<int64_t, Plan> plans_;
};

}  // namespace

std::unique_ptr<ProductKernel> MakeConv2D(const Conv2DOptions& options, CudnnSession& cudnn,
                                          const KernelContext& context) {
  return std::make_unique<Conv2D>(options, cudnn, context);
}

}  // namespace lockstep::trainer::cuda
