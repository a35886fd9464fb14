#pragma once

#include <memory>

#include "trainer/backend/cpu/context.h"
#include "trainer/backend/kernels.h"

namespace lockstep::trainer::cpu {

// The context outlives the kernel.
std::unique_ptr<ProductKernel> MakeDense(const DenseOptions& options, Context& context);

}  // namespace lockstep::trainer::cpu
