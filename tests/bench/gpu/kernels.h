#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/backend/device_backend.h"
#include "trainer/model/model.h"

namespace lockstep::bench {

// The parts of a training step, each enqueued again and again by itself. `widths`: of a stack of dense
// layers, the features first.

// Prints the microseconds of each layer's bare products (neither bias nor activation), forward and backward,
// those of layers of one shape once. Returns the seconds that all of a step take.
double MeasureProducts(trainer::DeviceBackend& device, const std::vector<int64_t>& widths, int64_t batch,
                       trainer::Precision precision, int count);

// Prints the microseconds of each kind of kernel in the MNIST job's step: the batch gathered by `load`, each
// layer with bias and activation, loss, and Adam; and their sum. A launch that takes the host longer than the
// device counts as long as the host took.
void MeasureKernels(trainer::DeviceBackend& device, const std::vector<int64_t>& widths, int64_t batch,
                    trainer::Precision precision, const std::function<void()>& load, int count);

}  // namespace lockstep::bench
