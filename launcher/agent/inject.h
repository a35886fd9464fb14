#pragma once

#include <filesystem>

#include "common/status.h"

namespace lockstep::agent {

// Copies the launcher with all that it loads, the folder `from`, to the existing folder `to`, where the pod
// of another image starts it. What is there already is replaced, so that it may be done again.
Status CopyLauncher(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace lockstep::agent
