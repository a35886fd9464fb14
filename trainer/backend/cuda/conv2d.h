#pragma once

#include <memory>

#include "trainer/backend/cuda/cudnn_session.h"
#include "trainer/backend/cuda/kernel_context.h"
#include "trainer/backend/layer_kernels.h"

namespace lockstep::trainer::cuda {

// A convolution by cuDNN, which has one (CudnnSession::Available); the session outlives it. Throws
// Unsupported, naming the convolution and the device, if cuDNN has no deterministic algorithm for it.
std::unique_ptr<ProductKernel> MakeConv2D(const Conv2DOptions& options, CudnnSession& cudnn,
                                          const KernelContext& context);

}  // namespace lockstep::trainer::cuda
