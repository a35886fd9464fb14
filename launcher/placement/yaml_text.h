#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::placement {

// A JSON document as YAML in block style; lists of plain values stay on one line. Strings are written as JSON
// strings where YAML could read them as anything else, so that a reader of either gets the same document.
// Invalid UTF-8 is replaced by U+FFFD. Ends with a newline.
std::string ToYaml(const nlohmann::ordered_json& document);

// The same document as indented JSON. Ends with a newline.
std::string ToJson(const nlohmann::ordered_json& document);

}  // namespace lockstep::placement
