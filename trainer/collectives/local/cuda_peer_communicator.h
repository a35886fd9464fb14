#pragma once

#include <memory>

#include "trainer/collectives/device_communicator.h"

namespace lockstep::trainer::collectives {

// HierarchicalCopy and ReductionToOneDevice, between the GPUs of one machine, or ranks that share one. A rank
// that owns a part of the data adds it up over the memory of all ranks, in their order, and writes the sums
// into the memory of all: with HierarchicalCopy every rank owns a part, with ReductionToOneDevice rank 0 owns
// everything. Where some device cannot reach another's memory, both go through memory of the host.
//
// Throws Unsupported (several machines, too many ranks), RendezvousFailed, DeviceLost.
std::unique_ptr<DeviceCommunicator> ConnectPeers(const DeviceCommunicatorOptions& options,
                                                 DeviceBackend& backend);

}  // namespace lockstep::trainer::collectives
