#pragma once

#include <memory>

#include "trainer/collectives/device_communicator.h"

namespace lockstep::trainer::collectives {

// Any number of machines. Throws as NcclGroup.
std::unique_ptr<DeviceCommunicator> ConnectNccl(const DeviceCommunicatorOptions& options,
                                                DeviceBackend& backend);

}  // namespace lockstep::trainer::collectives
