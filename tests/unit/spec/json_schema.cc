#include <cmath>
#include <regex>
#include <set>
#include <stdexcept>

#include "tests/unit/spec/support.h"

namespace lockstep::spec::testing {

namespace {

using Json = nlohmann::json;

bool IsType(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "number") return value.is_number();
  if (type == "integer") return value.is_number() && value.get<double>() == std::floor(value.get<double>());
  throw std::logic_error("type " + type);
}

std::string Type(const Json& value, const Json& type) {
  for (const Json& one : type.is_array() ? type : Json::array({type})) {
    if (IsType(value, one)) return "";
  }
  return "type";
}

std::string Object(const Json& value, const Json& schema, const std::string& path) {
  const Json properties = schema.value("properties", Json::object());
  const Json others = schema.value("additionalProperties", Json(true));
  for (const auto& [key, item] : value.items()) {
    if (const auto names = schema.find("propertyNames"); names != schema.end()) {
      if (auto broken = BreaksSchema(key, *names, path + "." + key); !broken.empty()) return broken;
    }
    const Json& rule = properties.contains(key) ? properties[key] : others;
    if (auto broken = BreaksSchema(item, rule, path + "." + key); !broken.empty()) return broken;
  }
  for (const Json& key : schema.value("required", Json::array())) {
    if (!value.contains(key.get<std::string>())) return path + ": required " + key.get<std::string>();
  }
  return value.size() > schema.value("maxProperties", size_t{1} << 30) ? path + ": maxProperties" : "";
}

std::string Array(const Json& value, const Json& schema, const std::string& path) {
  if (value.size() < schema.value("minItems", size_t{0})) return path + ": minItems";
  if (value.size() > schema.value("maxItems", size_t{1} << 30)) return path + ": maxItems";
  if (schema.value("uniqueItems", false) &&
      std::set<Json>(value.begin(), value.end()).size() != value.size()) {
    return path + ": uniqueItems";
  }
  for (size_t i = 0; schema.contains("items") && i < value.size(); ++i) {
    auto broken = BreaksSchema(value[i], schema["items"], path + "[" + std::to_string(i) + "]");
    if (!broken.empty()) return broken;
  }
  return "";
}

std::string Scalar(const Json& value, const Json& schema) {
  if (value.is_number()) {
    const double number = value.get<double>();
    if (schema.contains("minimum") && number < schema["minimum"].get<double>()) return "minimum";
    if (schema.contains("maximum") && number > schema["maximum"].get<double>()) return "maximum";
    if (schema.contains("exclusiveMinimum") && number <= schema["exclusiveMinimum"].get<double>())
      return "minimum";
    if (schema.contains("exclusiveMaximum") && number >= schema["exclusiveMaximum"].get<double>())
      return "maximum";
  }
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    if (text.size() < schema.value("minLength", size_t{0})) return "minLength";
    if (text.size() > schema.value("maxLength", size_t{1} << 30)) return "maxLength";
    const auto pattern = schema.value("pattern", std::string());
    // std::regex has no \u0000.
    if (pattern == "^[^\\u0000]*$") return text.find('\0') == std::string::npos ? "" : "pattern";
    if (!pattern.empty() && !std::regex_search(text, std::regex(pattern))) return "pattern";
  }
  return "";
}

std::string Combined(const Json& value, const Json& schema, const std::string& path) {
  for (const Json& one : schema.value("allOf", Json::array())) {
    if (auto broken = BreaksSchema(value, one, path); !broken.empty()) return broken;
  }
  if (schema.contains("anyOf")) {
    bool any = false;
    for (const Json& one : schema["anyOf"]) any = any || BreaksSchema(value, one, path).empty();
    if (!any) return path + ": anyOf";
  }
  if (schema.contains("if")) {
    const char* branch = BreaksSchema(value, schema["if"], path).empty() ? "then" : "else";
    if (schema.contains(branch)) return BreaksSchema(value, schema[branch], path);
  }
  return "";
}

}  // namespace

std::string BreaksSchema(const Json& value, const Json& schema, const std::string& path) {
  static const std::set<std::string> known = {"$schema",
                                              "$id",
                                              "title",
                                              "description",
                                              "default",
                                              "type",
                                              "enum",
                                              "const",
                                              "properties",
                                              "required",
                                              "additionalProperties",
                                              "propertyNames",
                                              "maxProperties",
                                              "items",
                                              "minItems",
                                              "maxItems",
                                              "uniqueItems",
                                              "minimum",
                                              "maximum",
                                              "exclusiveMinimum",
                                              "exclusiveMaximum",
                                              "minLength",
                                              "maxLength",
                                              "pattern",
                                              "allOf",
                                              "anyOf",
                                              "if",
                                              "then",
                                              "else"};
  if (schema.is_boolean()) return schema.get<bool>() ? "" : path + ": forbidden";
  for (const auto& [word, argument] : schema.items()) {
    if (!known.contains(word)) throw std::logic_error("schema word " + word);
  }
  if (schema.contains("type")) {
    if (auto broken = Type(value, schema["type"]); !broken.empty()) return path + ": " + broken;
  }
  if (schema.contains("const") && value != schema["const"]) return path + ": const";
  if (schema.contains("enum")) {
    const Json& words = schema["enum"];
    if (std::find(words.begin(), words.end(), value) == words.end()) return path + ": enum";
  }
  std::string broken = Scalar(value, schema);
  if (!broken.empty()) return path + ": " + broken;
  if (value.is_object()) broken = Object(value, schema, path);
  if (broken.empty() && value.is_array()) broken = Array(value, schema, path);
  return broken.empty() ? Combined(value, schema, path) : broken;
}

}  // namespace lockstep::spec::testing
