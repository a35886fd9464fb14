#include "launcher/placement/expand.h"

namespace lockstep::placement {

std::string Expand(std::string_view text, const Environment& variables) {
  std::string result;
  while (true) {
    const size_t dollar = text.find("$(");
    const size_t end = dollar == std::string_view::npos ? dollar : text.find(')', dollar);
    if (end == std::string_view::npos) return result.append(text);
    const auto known = variables.find(std::string(text.substr(dollar + 2, end - dollar - 2)));
    const bool escaped = dollar > 0 && text[dollar - 1] == '$';
    if (known == variables.end()) {
      result.append(text.substr(0, dollar + 2));  // a name may begin within
      text.remove_prefix(dollar + 2);
      continue;
    }
    result.append(text.substr(0, escaped ? dollar - 1 : dollar));
    result.append(escaped ? text.substr(dollar, end + 1 - dollar) : std::string_view(known->second));
    text.remove_prefix(end + 1);
  }
}

}  // namespace lockstep::placement
