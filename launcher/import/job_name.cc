#include "launcher/import/job_name.h"

#include <algorithm>
#include <cctype>

#include "common/lower_case.h"

namespace lockstep::importer {

std::string JobName(std::string_view words) {
  constexpr size_t kMaxName = 40;
  std::string name;
  for (const char c : words) {
    const bool keeps = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (keeps || !name.empty()) name += keeps ? LowerCase(c) : '-';
  }
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0) name = "job-" + name;
  name.resize(std::min(name.size(), kMaxName));
  while (name.ends_with('-')) name.pop_back();
  return name;
}

}  // namespace lockstep::importer
