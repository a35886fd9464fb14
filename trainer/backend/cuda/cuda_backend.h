#pragma once

#include <memory>

#include "trainer/backend/cuda_plugin.h"
#include "trainer/backend/device_backend.h"

namespace lockstep::trainer::cuda {

// CudaEntry::make_backend.
std::unique_ptr<DeviceBackend> MakeCudaBackend(const DeviceOptions& options);

}  // namespace lockstep::trainer::cuda
