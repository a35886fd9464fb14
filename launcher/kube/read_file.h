#pragma once

#include <string>

#include "common/status.h"

namespace lockstep::kube {

// At most 1 MiB of a regular file. The message names the path and never what is in it.
Result<std::string> ReadSmallFile(const std::string& path);

}  // namespace lockstep::kube
