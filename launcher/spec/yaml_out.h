#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::spec {

// JSON as YAML in block style, which YAML 1.1 and 1.2 read alike: what is not plainly a word stands in
// quotes, text of several lines in a literal block; a list of numbers is on one line.
std::string ToYaml(const nlohmann::ordered_json& value);

}  // namespace lockstep::spec
