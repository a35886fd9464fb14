#pragma once

#include <string>
#include <string_view>

namespace lockstep::kube {

// Everything but RFC 3986's unreserved characters as %XX.
std::string PercentEncoded(std::string_view text);

}  // namespace lockstep::kube
