#include "launcher/spec/yaml_out.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lockstep::spec {

namespace {

using Json = nlohmann::ordered_json;

bool IsWord(const std::string& text) {
  static constexpr std::string_view kOther[] = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"};
  if (text.empty() || std::isalpha(static_cast<unsigned char>(text.front())) == 0 || text.back() == ' ')
    return false;
  std::string lower = text;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (std::find(std::begin(kOther), std::end(kOther), lower) != std::end(kOther)) return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == ' ' || c == '.' || c == ';' || c == '-' || c == '_' || c == '/';
  });
}

std::string Scalar(const Json& value) {
  if (value.is_string() && IsWord(value.get<std::string>())) return value.get<std::string>();
  return value.dump();
}

void Write(const Json& value, const std::string& indent, std::string* out) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      if (out->ends_with('\n')) *out += indent;
      *out += (IsWord(key) ? key : Json(key).dump()) + ":";
      if (inner.empty() || !inner.is_structured()) {
        *out += " " + Scalar(inner) + "\n";
      } else {
        *out += "\n";
        Write(inner, inner.is_array() ? indent : indent + "  ", out);
      }
    }
    return;
  }
  for (const Json& item : value) {
    *out += indent + "- ";
    if (item.empty() || !item.is_structured()) {
      *out += Scalar(item) + "\n";
    } else {
      Write(item, indent + "  ", out);
    }
  }
}

}  // namespace

std::string ToYaml(const Json& value) {
  std::string out = "\n";
  Write(value, "", &out);
  return out.substr(1);
}

}  // namespace lockstep::spec
