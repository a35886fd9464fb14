#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::http {

// One gzip member (RFC 1952), quickly rather than small; empty when that would not be smaller, or there is no
// memory for it.
std::optional<std::string> Gzip(std::string_view text);

}  // namespace lockstep::http
