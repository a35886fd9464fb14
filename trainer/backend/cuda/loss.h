#pragma once

#include <memory>

#include "trainer/backend/cuda/kernel_context.h"
#include "trainer/backend/kernels.h"

namespace lockstep::trainer::cuda {

// Loss, gradient, correct answers and their sums by one kernel; the sums are added in the order of the
// samples' blocks, so the same bits come out each time.
std::unique_ptr<LossKernel> MakeLoss(const LossOptions& options, const KernelContext& context);

}  // namespace lockstep::trainer::cuda
