#pragma once

#include <cstdint>
#include <string>

namespace lockstep::bench {

struct StepOptions {
  std::string job = "mnist";  // or "dense": layers of one width, BFloat16, SGD
  std::string precision = "Float32";
  bool graphs = true;
  int64_t batch = 256;
  int64_t width = 8192;  // of "dense"
  int64_t layers = 8;
  int64_t steps = 2000;  // a round
};

// Whole training steps of one process on GPU:0, data on the device; prints the figures, one a line:
// microseconds a step, the host's processor time a step, TFLOP/s, the bare products' TFLOP/s, device memory
// before and after, and for "mnist" the time of each kind of kernel alone.
void MeasureSteps(const StepOptions& options);

// Prints how many bytes a second a copy within the device's memory reads and writes, taken together.
void MeasureCopies();

}  // namespace lockstep::bench
