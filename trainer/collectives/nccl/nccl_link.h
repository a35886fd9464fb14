#pragma once

#include <memory>

#include "trainer/collectives/device_link.h"

namespace lockstep::trainer::collectives {

// With a communicator, and a stream, for each of the two ways: on one, a message one way would wait until the
// one before it the other way has been taken. Both ways are connected when this returns: later no call waits
// for the other's host. Throws as NcclGroup.
std::unique_ptr<DeviceLink> LinkNccl(const DeviceLinkOptions& options, DeviceBackend& backend);

}  // namespace lockstep::trainer::collectives
