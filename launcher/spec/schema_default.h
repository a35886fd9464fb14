#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

#include "launcher/spec/enums.h"
#include "launcher/spec/fields.h"

// What a schema says of a field's default: the value that the struct has.
namespace lockstep::spec {

// Null: none that the schema could say.
template <class T>
nlohmann::ordered_json SchemaDefault(T&, const Facets&) {
  return nullptr;
}
inline nlohmann::ordered_json SchemaDefault(bool& value, const Facets&) { return value; }
inline nlohmann::ordered_json SchemaDefault(std::string& value, const Facets&) {
  return value.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(value);
}
inline nlohmann::ordered_json SchemaDefault(std::chrono::seconds& value, const Facets&) {
  return value.count();
}
template <class T>
requires std::is_arithmetic_v<T> nlohmann::ordered_json SchemaDefault(T& value, const Facets& facets) {
  return static_cast<double>(value) < facets.min ? nlohmann::ordered_json() : nlohmann::ordered_json(value);
}
template <class E>
requires std::is_enum_v<E> nlohmann::ordered_json SchemaDefault(E& value, const Facets&) {
  return std::string(Name(value));
}

}  // namespace lockstep::spec
