#pragma once

#include <string>
#include <string_view>

#include "common/status.h"
#include "trainer/checkpoint/checkpoint.h"

namespace lockstep::trainer::checkpoint {

// A signature as JSON text, and back. What is not one is kInvalidArgument with the reason.
std::string EncodeSignature(const Signature& signature);
Result<Signature> ParseSignature(std::string_view text);

}  // namespace lockstep::trainer::checkpoint
