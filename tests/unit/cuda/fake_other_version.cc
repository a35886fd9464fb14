#include "trainer/backend/cuda_plugin.h"

extern "C" const lockstep::trainer::CudaEntry lockstep_cuda_entry;
const lockstep::trainer::CudaEntry lockstep_cuda_entry{
    .build = "0.0.1", .device_count = nullptr, .make_backend = nullptr};
