#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "tests/support/cuda_on_host/convolution.h"
#include "tests/support/cuda_on_host/runtime.h"

// The part of cuDNN that the trainer uses. What it refuses is what NVIDIA's documentation does not list
// (cuDNN 9's backend API reference, "cudnn_cnn Library"), and on top of that what the trainer is not to do:
// an algorithm that gives other bits each time, less workspace than it was said to need, pointers that are
// not multiples of 16 bytes. Of the algorithms it proposes the first is not deterministic and the second
// needs more workspace than there is.
namespace {

using lockstep::cuda_on_host::ConvolutionShape;
using lockstep::cuda_on_host::CurrentDevice;
using lockstep::cuda_on_host::Enqueue;
using lockstep::cuda_on_host::Fault;
using lockstep::cuda_on_host::Reachable;

constexpr size_t kWorkspace = 64 << 10;
constexpr size_t kTooMuch = size_t{8} << 30;
// The trainer takes these; one for small kernels and one for others, so that both ways to a bias are gone.
constexpr auto kForward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
constexpr auto kForwardOfOne = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM;
constexpr auto kBackwardData = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
constexpr auto kBackwardFilter = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;

// A batch of images, or a kernel: filters, channels, height, width.
struct Extents {
  int64_t n = 0, channels = 0, height = 0, width = 0;
  int64_t count() const { return n * channels * height * width; }
  size_t bytes() const { return static_cast<size_t>(count()) * sizeof(float); }
};

cudnnStatus_t Set(Extents* to, cudnnTensorFormat_t format, cudnnDataType_t type, int n, int channels,
                  int height, int width) {
  if (to == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (std::min({n, channels, height, width}) < 1) return CUDNN_STATUS_BAD_PARAM;
  // (The trainer has no others.)
  if (format != CUDNN_TENSOR_NHWC) return CUDNN_STATUS_NOT_SUPPORTED_LAYOUT;
  if (type != CUDNN_DATA_FLOAT) return CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE;
  *to = {n, channels, height, width};
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

// What is behind the handles, by the names that cudnn.h gives them.
struct cudnnContext {
  int device = 0;
  cudaStream_t stream = nullptr;
};
struct cudnnTensorStruct : Extents {};
struct cudnnFilterStruct : Extents {};
struct cudnnConvolutionStruct {
  int padding[2] = {0, 0};
  int strides[2] = {1, 1};
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};
struct cudnnActivationStruct {
  cudnnActivationMode_t mode = CUDNN_ACTIVATION_IDENTITY;
};

namespace {

template <typename T>
cudnnStatus_t Create(T** made) {
  if (made == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  *made = new T();
  return CUDNN_STATUS_SUCCESS;
}

template <typename T>
cudnnStatus_t Destroy(T* owned) {
  delete owned;
  return CUDNN_STATUS_SUCCESS;
}

bool HasTf32() {
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, CurrentDevice()) == cudaSuccess &&
         major >= 8;
}

// What the descriptions describe together; false where they do not fit.
bool ShapeOf(const Extents& x, const Extents& kernel, const cudnnConvolutionStruct& convolution,
             const Extents& y, ConvolutionShape* shape) {
  const auto outputs = [&](int axis, int64_t extent, int64_t window) {
    return (extent + 2 * convolution.padding[axis] - window) / convolution.strides[axis] + 1;
  };
  *shape = {.n = x.n,
            .height = x.height,
            .width = x.width,
            .channels = x.channels,
            .kernel_height = kernel.height,
            .kernel_width = kernel.width,
            .filters = kernel.n,
            .output_height = y.height,
            .output_width = y.width,
            .stride_height = convolution.strides[0],
            .stride_width = convolution.strides[1],
            .pad_top = convolution.padding[0],
            .pad_left = convolution.padding[1],
            .tf32 = convolution.math != CUDNN_FMA_MATH && HasTf32()};
  return x.n == y.n && x.channels == kernel.channels && y.channels == kernel.n &&
         y.height == outputs(0, x.height, kernel.height) && y.width == outputs(1, x.width, kernel.width);
}

template <typename Performance, typename Algorithm>
cudnnStatus_t Propose(const cudnnConvolutionStruct& convolution, Algorithm unsteady, Algorithm greedy,
                      Algorithm right, int wanted, int* found, Performance* results) {
  if (wanted < 3 || found == nullptr || results == nullptr) return CUDNN_STATUS_BAD_PARAM;
  const auto propose = [&](Algorithm algorithm, size_t memory, cudnnDeterminism_t determinism) {
    Performance performance{};
    performance.algo = algorithm;
    performance.status = CUDNN_STATUS_SUCCESS;
    performance.time = -1;
    performance.memory = memory;
    performance.determinism = determinism;
    performance.mathType = convolution.math;
    return performance;
  };
  results[0] = propose(unsteady, 0, CUDNN_NON_DETERMINISTIC);
  results[1] = propose(greedy, kTooMuch, CUDNN_DETERMINISTIC);
  results[2] = propose(right, kWorkspace, CUDNN_DETERMINISTIC);
  *found = 3;
  return CUDNN_STATUS_SUCCESS;
}

struct Operand {
  const void* data;
  size_t bytes;
};

// Of a call that is right: enqueues `work` over operands that the device must reach.
template <typename Work>
cudnnStatus_t Run(cudnnHandle_t handle, const char* name, std::initializer_list<Operand> operands,
                  void* workspace, size_t workspace_bytes, float factor, float of_result, Work work) {
  if (factor != 1 || of_result != 0)
    return CUDNN_STATUS_NOT_SUPPORTED;  // the trainer scales and adds nothing
  if (handle->device != CurrentDevice()) return CUDNN_STATUS_BAD_PARAM;
  if (workspace_bytes < kWorkspace) return CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT;
  std::vector<Operand> all(operands);
  all.push_back({workspace, kWorkspace});
  const cudaError_t error = Enqueue(handle->stream, name, [=] {
    for (const Operand& operand : all) {
      if (!Reachable(operand.data, operand.bytes)) {
        return Fault(cudaErrorIllegalAddress, std::string(name) + ": memory that the device cannot reach");
      }
      if (reinterpret_cast<uintptr_t>(operand.data) % 16 != 0) {
        return Fault(cudaErrorMisalignedAddress, std::string(name) + ": not a multiple of 16 bytes");
      }
    }
    std::memset(workspace, 0xa5, kWorkspace);
    work();
  });
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED_CUDART;
}

float Value(const void* scalar) { return *static_cast<const float*>(scalar); }

bool IsForward(cudnnConvolutionFwdAlgo_t algorithm) {
  return algorithm == kForward || algorithm == kForwardOfOne;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (CUDNN_STATUS_CATEGORY(static_cast<int>(status))) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    default:
      return "CUDNN_STATUS_EXECUTION_FAILED";
  }
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  const cudnnStatus_t status = Create(handle);
  if (status == CUDNN_STATUS_SUCCESS) (*handle)->device = CurrentDevice();
  return status;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return Destroy(handle); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) { return Create(tensor); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) { return Destroy(tensor); }
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  return Set(tensor, format, type, n, c, h, w);
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) { return Create(filter); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) { return Destroy(filter); }
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  return Set(filter, format, type, k, c, h, w);
}
cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* activation) {
  return Create(activation);
}
cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t activation) {
  return Destroy(activation);
}
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activation, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t, double) {
  activation->mode = mode;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convolution) {
  return Create(convolution);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  return Destroy(convolution);
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h, int pad_w,
                                              int stride_h, int stride_w, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
  if (std::min(pad_h, pad_w) < 0 || std::min(stride_h, stride_w) < 1) return CUDNN_STATUS_BAD_PARAM;
  if (dilation_h != 1 || dilation_w != 1 || mode != CUDNN_CROSS_CORRELATION || compute != CUDNN_DATA_FLOAT) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  *convolution = {.padding = {pad_h, pad_w}, .strides = {stride_h, stride_w}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution, cudnnMathType_t math) {
  convolution->math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t kernel,
                                                     const cudnnConvolutionDescriptor_t convolution,
                                                     const cudnnTensorDescriptor_t y, const int wanted,
                                                     int* found, cudnnConvolutionFwdAlgoPerf_t* results) {
  ConvolutionShape shape;
  if (!ShapeOf(*x, *kernel, *convolution, *y, &shape)) return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  const bool of_one = shape.kernel_height == 1 && shape.kernel_width == 1;
  return Propose(*convolution, CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, CUDNN_CONVOLUTION_FWD_ALGO_FFT,
                 of_one ? kForwardOfOne : kForward, wanted, found, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, const cudnnFilterDescriptor_t kernel,
                                                          const cudnnTensorDescriptor_t dy,
                                                          const cudnnConvolutionDescriptor_t convolution,
                                                          const cudnnTensorDescriptor_t dx, const int wanted,
                                                          int* found,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* results) {
  ConvolutionShape shape;
  if (!ShapeOf(*dx, *kernel, *convolution, *dy, &shape)) return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  return Propose(*convolution, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT,
                 kBackwardData, wanted, found, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                            const cudnnTensorDescriptor_t dy,
                                                            const cudnnConvolutionDescriptor_t convolution,
                                                            const cudnnFilterDescriptor_t dkernel,
                                                            const int wanted, int* found,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  ConvolutionShape shape;
  if (!ShapeOf(*x, *dkernel, *convolution, *dy, &shape)) return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  return Propose(*convolution, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT,
                 kBackwardFilter, wanted, found, results);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      const cudnnTensorDescriptor_t x_of, const void* x,
                                      const cudnnFilterDescriptor_t kernel_of, const void* kernel,
                                      const cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
                                      size_t workspace_bytes, const void* beta,
                                      const cudnnTensorDescriptor_t y_of, void* y) {
  ConvolutionShape shape;
  if (!ShapeOf(*x_of, *kernel_of, *convolution, *y_of, &shape)) return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  if (!IsForward(algorithm)) return CUDNN_STATUS_NOT_SUPPORTED;
  return Run(handle, "cudnnConvolutionForward",
             {{x, x_of->bytes()}, {kernel, kernel_of->bytes()}, {y, y_of->bytes()}}, workspace,
             workspace_bytes, Value(alpha), Value(beta), [=] {
               lockstep::cuda_on_host::Convolve(shape, static_cast<const float*>(x),
                                                static_cast<const float*>(kernel), static_cast<float*>(y));
             });
}

// "Only the IMPLICIT_PRECOMP_GEMM algorithm is enabled with CUDNN_ACTIVATION_IDENTITY"; and no other
// algorithm at all is here, so that it is seen what the trainer does then.
cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x_of, const void* x,
    const cudnnFilterDescriptor_t kernel_of, const void* kernel,
    const cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
    size_t workspace_bytes, const void* beta, const cudnnTensorDescriptor_t z_of, const void* z,
    const cudnnTensorDescriptor_t bias_of, const void* bias, const cudnnActivationDescriptor_t activation,
    const cudnnTensorDescriptor_t y_of, void* y) {
  ConvolutionShape shape;
  if (!ShapeOf(*x_of, *kernel_of, *convolution, *y_of, &shape)) return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  if (bias_of->count() != shape.filters || bias_of->channels != shape.filters ||
      z_of->count() != y_of->count()) {
    return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  }
  if (z == nullptr || bias == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (algorithm != kForward) return CUDNN_STATUS_NOT_SUPPORTED;
  const bool relu = activation->mode == CUDNN_ACTIVATION_RELU;
  if (!relu && activation->mode != CUDNN_ACTIVATION_IDENTITY) return CUDNN_STATUS_NOT_SUPPORTED;
  return Run(handle, "cudnnConvolutionBiasActivationForward",
             {{x, x_of->bytes()}, {kernel, kernel_of->bytes()}, {bias, bias_of->bytes()}, {y, y_of->bytes()}},
             workspace, workspace_bytes, Value(alpha), Value(beta), [=] {
               auto* const outputs = static_cast<float*>(y);
               lockstep::cuda_on_host::Convolve(shape, static_cast<const float*>(x),
                                                static_cast<const float*>(kernel), outputs);
               for (int64_t i = 0; i < shape.outputs(); ++i) {
                 const float value = outputs[i] + static_cast<const float*>(bias)[i % shape.filters];
                 outputs[i] = relu ? std::max(value, 0.0f) : value;
               }
             });
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t kernel_of, const void* kernel,
                                           const cudnnTensorDescriptor_t dy_of, const void* dy,
                                           const cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           size_t workspace_bytes, const void* beta,
                                           const cudnnTensorDescriptor_t dx_of, void* dx) {
  ConvolutionShape shape;
  if (!ShapeOf(*dx_of, *kernel_of, *convolution, *dy_of, &shape))
    return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  if (algorithm != kBackwardData) return CUDNN_STATUS_NOT_SUPPORTED;
  return Run(handle, "cudnnConvolutionBackwardData",
             {{kernel, kernel_of->bytes()}, {dy, dy_of->bytes()}, {dx, dx_of->bytes()}}, workspace,
             workspace_bytes, Value(alpha), Value(beta), [=] {
               lockstep::cuda_on_host::ConvolveBackwardData(shape, static_cast<const float*>(kernel),
                                                            static_cast<const float*>(dy),
                                                            static_cast<float*>(dx));
             });
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t x_of, const void* x,
                                             const cudnnTensorDescriptor_t dy_of, const void* dy,
                                             const cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             size_t workspace_bytes, const void* beta,
                                             const cudnnFilterDescriptor_t dkernel_of, void* dkernel) {
  ConvolutionShape shape;
  if (!ShapeOf(*x_of, *dkernel_of, *convolution, *dy_of, &shape))
    return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  if (algorithm != kBackwardFilter) return CUDNN_STATUS_NOT_SUPPORTED;
  return Run(handle, "cudnnConvolutionBackwardFilter",
             {{x, x_of->bytes()}, {dy, dy_of->bytes()}, {dkernel, dkernel_of->bytes()}}, workspace,
             workspace_bytes, Value(alpha), Value(beta), [=] {
               lockstep::cuda_on_host::ConvolveBackwardFilter(shape, static_cast<const float*>(x),
                                                              static_cast<const float*>(dy),
                                                              static_cast<float*>(dkernel));
             });
}

}  // extern "C"
