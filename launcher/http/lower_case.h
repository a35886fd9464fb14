#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace lockstep::http {

// Of a header's name or value, in ASCII.
inline std::string LowerCase(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return result;
}

}  // namespace lockstep::http
