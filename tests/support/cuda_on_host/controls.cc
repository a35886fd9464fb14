#include "tests/support/cuda_on_host/controls.h"

#include "tests/support/cuda_on_host/state.h"

namespace lockstep::cuda_on_host {

void Hold(bool held);
void RefuseAllocations(int count);
int64_t AllocatedBytes();

namespace {

void FaultNow(int error) { Fault(static_cast<cudaError_t>(error), "asked for by a test"); }

}  // namespace
}  // namespace lockstep::cuda_on_host

using lockstep::cuda_on_host::Controls;
extern "C" __attribute__((visibility("default"))) const Controls lockstep_cuda_on_host_controls;
const Controls lockstep_cuda_on_host_controls{
    .fault = lockstep::cuda_on_host::FaultNow,
    .refuse_allocations = lockstep::cuda_on_host::RefuseAllocations,
    .allocated_bytes = lockstep::cuda_on_host::AllocatedBytes,
    .hold = lockstep::cuda_on_host::Hold,
};
