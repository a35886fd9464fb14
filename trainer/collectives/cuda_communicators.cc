#include "trainer/collectives/device_communicator.h"
#include "trainer/collectives/device_link.h"
#include "trainer/collectives/local/cuda_peer_communicator.h"
#include "trainer/collectives/local/cuda_peer_link.h"
#include "trainer/collectives/nccl/nccl_communicator.h"
#include "trainer/collectives/nccl/nccl_link.h"

namespace lockstep::trainer::collectives {
namespace {

std::unique_ptr<DeviceCommunicator> Connect(const DeviceCommunicatorOptions& options,
                                            DeviceBackend& backend) {
  return options.ops == DeviceOps::kNccl ? ConnectNccl(options, backend) : ConnectPeers(options, backend);
}

std::unique_ptr<DeviceLink> Link(const DeviceLinkOptions& options, DeviceBackend& backend) {
  return options.ops == DeviceOps::kNccl ? LinkNccl(options, backend) : LinkPeers(options, backend);
}

}  // namespace
}  // namespace lockstep::trainer::collectives

// kCudaCommunicators.
extern "C" __attribute__((visibility("default")))
const lockstep::trainer::collectives::CudaCommunicators lockstep_cuda_communicators;
const lockstep::trainer::collectives::CudaCommunicators lockstep_cuda_communicators{
    .connect = lockstep::trainer::collectives::Connect, .link = lockstep::trainer::collectives::Link};
