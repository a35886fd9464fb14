#pragma once

#include <string>

#include "trainer/backend/cuda_plugin.h"
#include "trainer/collectives/device_communicator.h"

namespace lockstep::testing {

// The GPUs of this program's plugin: the stand-in of tests/support/cuda_on_host, with four, or (label gpu)
// the real one with what the machine has.
struct Gpus {
  const trainer::CudaEntry* entry = nullptr;  // null: `why`
  const trainer::collectives::CudaCommunicators* communicators = nullptr;
  std::string why;
};
// Asks no device for anything yet, so that processes may be forked afterwards.
const Gpus& AllGpus();
// Why a test of this program cannot have so many; "" if it can.
std::string WhyNotSoMany(int gpus);

}  // namespace lockstep::testing
