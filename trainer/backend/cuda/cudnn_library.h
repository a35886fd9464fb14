#pragma once

#include <cudnn.h>

#include <optional>
#include <string>

// cuDNN, which is opened when a model has convolutions: everything else runs without it. It is asked through
// its functions for single convolutions, which cuDNN 9 has, though it calls them deprecated: they say what is
// deterministic, choose without trials, and need no graph of one node.
#define LOCKSTEP_CUDNN_FUNCTIONS(X)                \
  X(cudnnGetVersion)                               \
  X(cudnnGetErrorString)                           \
  X(cudnnCreate)                                   \
  X(cudnnDestroy)                                  \
  X(cudnnSetStream)                                \
  X(cudnnCreateTensorDescriptor)                   \
  X(cudnnSetTensor4dDescriptor)                    \
  X(cudnnDestroyTensorDescriptor)                  \
  X(cudnnCreateFilterDescriptor)                   \
  X(cudnnSetFilter4dDescriptor)                    \
  X(cudnnDestroyFilterDescriptor)                  \
  X(cudnnCreateConvolutionDescriptor)              \
  X(cudnnSetConvolution2dDescriptor)               \
  X(cudnnSetConvolutionMathType)                   \
  X(cudnnDestroyConvolutionDescriptor)             \
  X(cudnnCreateActivationDescriptor)               \
  X(cudnnSetActivationDescriptor)                  \
  X(cudnnDestroyActivationDescriptor)              \
  X(cudnnGetConvolutionForwardAlgorithm_v7)        \
  X(cudnnGetConvolutionBackwardDataAlgorithm_v7)   \
  X(cudnnGetConvolutionBackwardFilterAlgorithm_v7) \
  X(cudnnConvolutionForward)                       \
  X(cudnnConvolutionBiasActivationForward)         \
  X(cudnnConvolutionBackwardData)                  \
  X(cudnnConvolutionBackwardFilter)

namespace lockstep::trainer::cuda {

// Its functions, by their own names.
struct Cudnn {
// NOLINTNEXTLINE(bugprone-macro-parentheses): what is declared has none
#define LOCKSTEP_DECLARE(name) decltype(&::name) name = nullptr;
  LOCKSTEP_CUDNN_FUNCTIONS(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

  // Throws as LOCKSTEP_CUDA does.
  void Check(cudnnStatus_t status, const char* operation, const char* file, int line) const;
};

// Found as the dynamic linker finds libraries for liblockstep-cuda.so; stays open for good. None where it is
// missing or of another version than 9; then `why` says so.
std::optional<Cudnn> OpenCudnn(std::string* why);

}  // namespace lockstep::trainer::cuda

// LOCKSTEP_CUDNN(cudnn, cudnnSetStream(handle, stream));
#define LOCKSTEP_CUDNN(cudnn, call) (cudnn).Check((cudnn).call, #call, __FILE__, __LINE__)
