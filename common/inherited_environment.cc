#include "common/inherited_environment.h"

#include <unistd.h>

#include <string_view>

namespace lockstep {

std::map<std::string, std::string> InheritedEnvironment() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

}  // namespace lockstep
