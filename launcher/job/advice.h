#pragma once

#include <string>
#include <vector>

#include "launcher/placement/assign.h"

namespace lockstep::job {

// What to do about a mistake that a failed rank's last lines show, where it is one that comes from the
// devices that it was given: a GPU asked for by a number that it does not see. Empty: no such mistake.
std::string AdviceFor(const std::vector<std::string>& last_lines, const placement::ProcessDevices& devices);

}  // namespace lockstep::job
