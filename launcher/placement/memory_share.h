#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "launcher/placement/assign.h"
#include "launcher/placement/device_pool.h"
#include "launcher/spec/training_job.h"

namespace lockstep::placement {

struct MemoryRequest {
  const spec::Devices& devices;
  std::vector<PoolDevice> own = {};  // the process's GPUs, at least one
  int sharers = 1;                   // processes on the fullest of them
  bool mps_control = false;          // an MPS daemon can be started
  bool divided = true;               // it gets a virtual device; false: it sees whole GPUs
  std::string field = {};            // "spec."
};

// How much one process may take of its devices: `virtual` and `memory` together, the tighter of the two. A
// virtual device without a memoryLimit is an equal part of its GPU. kInvalidArgument: more than the device
// has, or than its sharers can have at once; kFailedPrecondition: MPS is asked for and not there.
Result<MemoryShare> ShareMemory(const MemoryRequest& request, std::vector<std::string>& notices);

// "1.5 GiB", "512 MiB".
std::string FormatBytes(int64_t bytes);

// "0.125": at most three decimals, never rounded up past the limit, at least 0.001.
std::string FormatFraction(double fraction);

}  // namespace lockstep::placement
