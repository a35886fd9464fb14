#pragma once

#include <string>

#include "trainer/backend/device_backend.h"

namespace lockstep::trainer::cuda {

// Of a device that this process sees. Throws Unsupported, naming it and those there are, if there is none
// with this number.
DeviceIdentity IdentityOf(int ordinal);

// "GPU 0 (NVIDIA H200)", for messages.
std::string NameOf(const DeviceIdentity& identity);

}  // namespace lockstep::trainer::cuda
