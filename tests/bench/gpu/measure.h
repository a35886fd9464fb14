#pragma once

#include <functional>

#include "trainer/backend/device_backend.h"

namespace lockstep::bench {

// "NAME VALUE", a line that tests/bench/gpu.py reads.
void Print(const char* what, double value);

// The best of several rounds: seconds an execution of `enqueue`, on the device's own clock.
double DeviceSeconds(trainer::DeviceBackend& device, int count, const std::function<void()>& enqueue);

}  // namespace lockstep::bench
