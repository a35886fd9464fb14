#include "launcher/spec/yaml_out.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/lower_case.h"

namespace lockstep::spec {

namespace {

using Json = nlohmann::ordered_json;

bool IsWord(const std::string& text) {
  static constexpr std::string_view kOther[] = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"};
  if (text.empty() || std::isalpha(static_cast<unsigned char>(text.front())) == 0 || text.back() == ' ')
    return false;
  const std::string lower = LowerCase(text);
  if (std::find(std::begin(kOther), std::end(kOther), lower) != std::end(kOther)) return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == ' ' || c == '.' || c == ';' || c == '-' || c == '_' || c == '/';
  });
}

std::string Scalar(const Json& value) {
  if (value.is_string() && IsWord(value.get<std::string>())) return value.get<std::string>();
  return value.dump();
}

// Text of several lines that reads alike as it is: nothing to escape, no line that begins or ends with blanks
// where they would be lost.
bool IsBlock(const Json& value) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  if (text.find('\n') == std::string::npos || text[0] == '\n' || text[0] == ' ' || text.ends_with("\n\n"))
    return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c != '\n' && (c < 0x20 || c > 0x7e)) return false;
    if (c == ' ' && (i + 1 == text.size() || text[i + 1] == '\n')) return false;
  }
  return true;
}

bool IsNumbers(const Json& list) {
  return list.is_array() &&
         std::all_of(list.begin(), list.end(), [](const Json& item) { return item.is_number(); });
}

// What fits behind a key or a dash; `indent` is that of the line.
std::string Inline(const Json& value, const std::string& indent) {
  if (IsBlock(value)) {
    const auto& text = value.get_ref<const std::string&>();
    std::string out = text.ends_with('\n') ? "|" : "|-";
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      out += '\n';
      if (end > begin) out += indent + "  " + text.substr(begin, end - begin);
      begin = end + 1;
    }
    return out;
  }
  if (!IsNumbers(value) || value.empty()) return Scalar(value);
  std::string out;
  for (const Json& item : value) out += (out.empty() ? "[" : ", ") + item.dump();
  return out + "]";
}

bool FitsInline(const Json& value) { return value.empty() || !value.is_structured() || IsNumbers(value); }

void Write(const Json& value, const std::string& indent, std::string* out) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      if (out->ends_with('\n')) *out += indent;
      *out += (IsWord(key) ? key : Json(key).dump()) + ":";
      if (FitsInline(inner)) {
        *out += " " + Inline(inner, indent) + "\n";
      } else {
        *out += "\n";
        Write(inner, inner.is_array() ? indent : indent + "  ", out);
      }
    }
    return;
  }
  for (const Json& item : value) {
    *out += indent + "- ";
    if (FitsInline(item)) {
      *out += Inline(item, indent) + "\n";
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
