#pragma once

#include <memory>

#include "trainer/collectives/device_link.h"

namespace lockstep::trainer::collectives {

// Between GPUs of one machine, or ranks that share one: who sends copies into the other's memory, and the
// other's stream waits for an event of the copy. Where one cannot reach the other's memory, a message goes
// through memory of the host.
//
// Throws RendezvousFailed, DeviceLost, OutOfMemory.
std::unique_ptr<DeviceLink> LinkPeers(const DeviceLinkOptions& options, DeviceBackend& backend);

}  // namespace lockstep::trainer::collectives
