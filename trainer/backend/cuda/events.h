#pragma once

#include <functional>
#include <memory>

#include "trainer/backend/cuda/handles.h"
#include "trainer/backend/device_backend.h"

namespace lockstep::trainer::cuda {

// For the calling thread's current device. With timing, an event that is recorded into a graph is a point in
// each of its launches; without, one that orders the work that is being recorded.
std::unique_ptr<DeviceEvent> MakeDeviceEvent(bool timing, int ordinal);

// Records what `enqueue` puts on `stream`, and on streams that join it, as DeviceBackend::Record says.
std::unique_ptr<DeviceGraph> RecordGraph(cudaStream_t stream, int ordinal,
                                         const std::function<void()>& enqueue);

}  // namespace lockstep::trainer::cuda
