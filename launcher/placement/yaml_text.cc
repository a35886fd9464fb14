#include "launcher/placement/yaml_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/lower_case.h"

namespace lockstep::placement {
namespace {

using Json = nlohmann::ordered_json;

// A JSON string is a YAML double-quoted one, but for DEL and the C1 controls, which YAML 1.2 (5.1) wants
// escaped.
std::string Quote(const std::string& text) {
  const std::string json = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string quoted;
  for (size_t i = 0; i < json.size(); ++i) {
    const auto c = static_cast<unsigned char>(json[i]);
    const auto next = i + 1 < json.size() ? static_cast<unsigned char>(json[i + 1]) : 0;
    constexpr std::string_view kHex = "0123456789abcdef";
    if (c == 0x7f) {
      quoted += "\\x7f";
    } else if (c == 0xc2 && next >= 0x80 && next < 0xa0) {  // U+0080 … U+009F in UTF-8
      quoted += "\\x";
      quoted += kHex[next >> 4];
      quoted += kHex[next & 15];
      ++i;
    } else {
      quoted += json[i];
    }
  }
  return quoted;
}

// Words that some version of YAML reads as a boolean or null.
bool IsReserved(std::string_view text) {
  constexpr std::array<std::string_view, 10> kWords = {"y",   "n",    "yes",   "no",   "on",
                                                       "off", "true", "false", "null", "nan"};
  return std::find(kWords.begin(), kWords.end(), LowerCase(text)) != kWords.end();
}

std::string Key(const std::string& text) {
  const auto is_word = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  const bool plain = !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
                     std::all_of(text.begin(), text.end(), is_word) && !IsReserved(text);
  return plain ? text : Quote(text);
}

std::string Scalar(const Json& value) {
  return value.is_string() ? Quote(value.get<std::string>()) : value.dump();
}

bool IsPlainList(const Json& value) {
  return value.is_array() &&
         std::none_of(value.begin(), value.end(), [](const Json& item) { return item.is_structured(); });
}

std::string Flow(const Json& list) {
  std::string text = "[";
  for (const Json& item : list) text += (text.size() > 1 ? ", " : "") + Scalar(item);
  return text + "]";
}

// `pad` stands before every line but the first, which continues the caller's.
void Append(const Json& value, const std::string& pad, std::string& out) {
  if (!value.is_structured() || IsPlainList(value) || value.empty()) {
    out += (!value.is_structured() ? Scalar(value) : value.is_object() ? "{}" : Flow(value)) + "\n";
    return;
  }
  bool first = true;
  const auto indent = [&] {
    if (!first) out += pad;
    first = false;
  };
  if (value.is_array()) {
    for (const Json& item : value) {
      indent();
      out += "- ";
      Append(item, pad + "  ", out);
    }
    return;
  }
  for (const auto& [key, item] : value.items()) {
    indent();
    out += Key(key) + ":";
    const bool block = item.is_structured() && !item.empty() && !IsPlainList(item);
    if (!block) {
      out += " ";
      Append(item, "", out);
    } else {
      out += "\n" + pad + "  ";
      Append(item, pad + "  ", out);
    }
  }
}

}  // namespace

std::string ToYaml(const nlohmann::ordered_json& document) {
  std::string out;
  Append(document, "", out);
  return out;
}

std::string ToJson(const nlohmann::ordered_json& document) {
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::placement
