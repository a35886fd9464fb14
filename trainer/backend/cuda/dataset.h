#pragma once

#include <cstdint>
#include <memory>

#include "trainer/backend/cuda/kernel_context.h"
#include "trainer/backend/device_backend.h"

namespace lockstep::trainer::cuda {

// Resident if rows and targets take at most `resident_bytes` of device memory and can be had. Throws
// OutOfMemory if not even two batches can.
std::unique_ptr<DeviceDataset> MakeDataset(const DeviceDatasetOptions& options, int64_t resident_bytes,
                                           const KernelContext& context);

}  // namespace lockstep::trainer::cuda
