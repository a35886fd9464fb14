#include "tests/unit/spec/reference.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "launcher/spec/json.h"

namespace lockstep::spec::testing {

namespace {

using Json = nlohmann::ordered_json;

std::string Range(const Json& schema) {
  const bool above = schema.contains("exclusiveMinimum");
  const bool below = schema.contains("exclusiveMaximum");
  if (!above && !schema.contains("minimum")) return "";
  const std::string low = schema[above ? "exclusiveMinimum" : "minimum"].dump();
  if (!below && (!schema.contains("maximum") || schema["maximum"] == INT64_MAX))
    return (above ? " > " : " ≥ ") + low;
  return " " + std::string(above ? "(" : "[") + low + ", " +
         schema[below ? "exclusiveMaximum" : "maximum"].dump() + (below ? ")" : "]");
}

std::string Type(const Json& schema) {
  if (schema.contains("enum")) {
    std::string words;
    for (const Json& word : schema["enum"])
      words += (words.empty() ? "`" : ", `") + word.get<std::string>() + "`";
    return words;
  }
  if (!schema.contains("type")) return "any";
  if (schema["type"].is_array()) {
    const bool duration = schema["pattern"].get<std::string>().find('h') != std::string::npos;
    return (duration ? "seconds or duration" : "bytes or quantity") + Range(schema);
  }
  const auto type = schema["type"].get<std::string>();
  if (type == "array") return "list of " + Type(schema["items"]);
  if (type == "object") return schema.contains("propertyNames") ? "map of strings" : "mapping";
  return type + Range(schema);
}

// Splits "MEANING Default: WORDS." into its two parts.
std::pair<std::string, std::string> MeaningAndDefault(const Json& schema) {
  std::string meaning = schema.value("description", "");
  std::string fallback = schema.contains("default") ? "`" + schema["default"].dump() + "`" : "";
  if (fallback.starts_with("`\"")) fallback = "`" + fallback.substr(2, fallback.size() - 4) + "`";
  constexpr char kDefault[] = " Default: ";
  if (const size_t begin = meaning.find(kDefault); begin != std::string::npos) {
    const size_t end = meaning.find(". ", begin);
    const size_t stop = end == std::string::npos ? meaning.size() - 1 : end;
    fallback = meaning.substr(begin + sizeof kDefault - 1, stop - begin - sizeof kDefault + 1);
    meaning.erase(begin, stop + 1 - begin);
  }
  return {meaning, fallback};
}

void Table(const std::string& path, const Json& schema, std::string& text) {
  std::vector<std::pair<std::string, const Json*>> nested;
  text += "\n### " + (path.empty() ? "The manifest" : "`" + path + "`") + "\n\n";
  text += "| field | type | default | meaning |\n|---|---|---|---|\n";
  const Json none = Json::array();
  const Json& required = schema.contains("required") ? schema["required"] : none;
  for (const auto& [name, field] : schema["properties"].items()) {
    auto [meaning, fallback] = MeaningAndDefault(field);
    if (std::find(required.begin(), required.end(), name) != required.end()) fallback = "required";
    std::string row = "| `" + name + "` | " + Type(field) + " | " + fallback + " | ";
    for (const char c : meaning) row += c == '|' ? "\\|" : std::string(1, c);
    text += row + " |\n";
    const std::string inner = path.empty() ? name : path + "." + name;
    const Json* body = &field;
    const bool list = body->contains("items");
    if (list) body = &(*body)["items"];
    if (body->contains("properties")) nested.emplace_back(inner + (list ? "[]" : ""), body);
  }
  for (const auto& [inner, body] : nested) {
    // Said once, under spec.
    if (inner == "spec.roles[].devices" || inner == "spec.roles[].program") continue;
    Table(inner, *body, text);
  }
}

}  // namespace

std::string Reference() {
  std::string text;
  Table("", Json::parse(Schema()), text);
  return text;
}

}  // namespace lockstep::spec::testing
