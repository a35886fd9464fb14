#pragma once

#include <cstdint>

#include "trainer/backend/cuda/kernel_context.h"
#include "trainer/backend/kernels.h"

namespace lockstep::trainer::cuda {

// Backend::Sgd and Backend::Adam: one kernel each, enqueued on the context's stream.
void Sgd(const SgdStep& step, const UpdateBuffers& buffers, int64_t begin, int64_t end,
         const KernelContext& context);
void Adam(const AdamStep& step, const UpdateBuffers& buffers, int64_t begin, int64_t end,
          const KernelContext& context);
// Backend::MoveAverage and Backend::Accumulate.
void MoveAverage(float keep, const StepRates* rates, const float* parameters, float* average, int64_t begin,
                 int64_t end, const KernelContext& context);
void Accumulate(float factor, const float* from, float* to, int64_t count, const KernelContext& context);

}  // namespace lockstep::trainer::cuda
