#pragma once

#include "common/unique_fd.h"

namespace lockstep::trainer {

// The pipe from or to the launcher whose descriptor's number is this process's environment variable
// `variable`. Empty where that is not set or names no open descriptor. What this process starts does not get
// it.
UniqueFd InheritedPipe(const char* variable);

}  // namespace lockstep::trainer
