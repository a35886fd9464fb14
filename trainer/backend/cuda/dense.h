#pragma once

#include <memory>

#include "trainer/backend/cuda/kernel_context.h"
#include "trainer/backend/kernels.h"

namespace lockstep::trainer::cuda {

// Products by cuBLASLt with bias and activation in their epilogues, everything else by one kernel of our own.
// The algorithm for a batch size is chosen at its first call, which must not be within a recording.
std::unique_ptr<ProductKernel> MakeDense(const DenseOptions& options, const KernelContext& context);

}  // namespace lockstep::trainer::cuda
