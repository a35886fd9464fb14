#pragma once

#include <cstdint>

#include "trainer/backend/cuda/kernel_context.h"

namespace lockstep::trainer::cuda {

// Doubles of device memory that SumOfSquares works in.
inline constexpr int64_t kSumOfSquaresScratch = 1025;

// Enqueues: scratch[0] = Σ x² over `count` floats, in double, the same bits each time.
void SumOfSquares(const float* data, int64_t count, double* scratch, const KernelContext& context);
// Enqueues: *to += *from, in the device's memory.
void AddNumber(const double* from, double* to, const KernelContext& context);

}  // namespace lockstep::trainer::cuda
