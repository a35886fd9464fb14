#pragma once

#include <memory>

#include "trainer/backend/cpu/vector_kernels.h"
#include "trainer/backend/kernels.h"

namespace lockstep::trainer::cpu {

std::unique_ptr<LossKernel> MakeLoss(const LossOptions& options, const VectorKernels& kernels);

}  // namespace lockstep::trainer::cpu
