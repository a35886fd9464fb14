#pragma once

#include <memory>

#include "trainer/collectives/device_communicator.h"

namespace lockstep::trainer::collectives {

// Any number of machines. NCCL is never waited for in a call of its own: everything is started and then
// polled, with a deadline. What the environment says of NCCL_* is left as it is.
//
// Throws RendezvousFailed (naming who has not come), Unsupported (ranks share a GPU and NCCL is older than
// 2.30), DeviceLost.
std::unique_ptr<DeviceCommunicator> ConnectNccl(const DeviceCommunicatorOptions& options,
                                                DeviceBackend& backend);

}  // namespace lockstep::trainer::collectives
