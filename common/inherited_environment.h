#pragma once

#include <map>
#include <string>

namespace lockstep {

// This process's environment as it was when it started, less what isn't NAME=VALUE.
std::map<std::string, std::string> InheritedEnvironment();

}  // namespace lockstep
