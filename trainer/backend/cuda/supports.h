#pragma once

#include <string>

#include "trainer/backend/backend.h"

namespace lockstep::trainer::cuda {

// Backend::Supports for a device of this compute capability (90 for sm_90); `device` names it in reasons.
Support Supports(Op op, DataType type, int capability, const std::string& device);

}  // namespace lockstep::trainer::cuda
