#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

// Fields of an object of the API. What is not there or of another type is empty or zero: the server has
// checked what it holds, and a field that a later version changed must not end the operator.
namespace lockstep::op {

inline const nlohmann::json& Child(const nlohmann::json& object, std::string_view key) {
  static const nlohmann::json nothing;
  if (!object.is_object()) return nothing;
  const auto found = object.find(key);
  return found == object.end() ? nothing : *found;
}

inline const nlohmann::json& Items(const nlohmann::json& object, std::string_view key) {
  static const nlohmann::json none = nlohmann::json::array();
  const nlohmann::json& items = Child(object, key);
  return items.is_array() ? items : none;
}

inline std::string Text(const nlohmann::json& object, std::string_view key) {
  const nlohmann::json& value = Child(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

inline bool Flag(const nlohmann::json& object, std::string_view key) {
  const nlohmann::json& value = Child(object, key);
  return value.is_boolean() && value.get<bool>();
}

inline std::optional<int64_t> MaybeInteger(const nlohmann::json& object, std::string_view key) {
  const nlohmann::json& value = Child(object, key);
  if (!value.is_number_integer()) return {};
  return value.get<int64_t>();
}

inline int64_t Integer(const nlohmann::json& object, std::string_view key) {
  return MaybeInteger(object, key).value_or(0);
}

// Never negative.
inline int Count(const nlohmann::json& object, std::string_view key) {
  return static_cast<int>(std::clamp<int64_t>(Integer(object, key), 0, std::numeric_limits<int>::max()));
}

}  // namespace lockstep::op
