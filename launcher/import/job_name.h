#pragma once

#include <string>
#include <string_view>

namespace lockstep::importer {

// A job's name that is as near to `words` as one can be: at most 40 small letters, digits and -, a letter
// first.
std::string JobName(std::string_view words);

}  // namespace lockstep::importer
