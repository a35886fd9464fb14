#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "launcher/spec/fields_job.h"
#include "launcher/spec/json.h"
#include "launcher/spec/scalar.h"
#include "launcher/spec/schema_default.h"

namespace lockstep::spec {

namespace {

using Json = nlohmann::ordered_json;

// A bound as an integer where it is one.
Json Bound(double value) {
  constexpr double kExact = 9007199254740992.0;
  if (value == std::floor(value) && std::abs(value) <= kExact) return static_cast<int64_t>(value);
  return value;
}

// The visitor of fields.h that makes the schema of one mapping, from a struct that holds its defaults.
class SchemaMaker {
 public:
  template <class T>
  void operator()(std::string_view name, T& member, const Facets& facets, const When& when = {}) {
    Json schema = Of(member, facets);
    if (!facets.required && facets.or_else.empty()) {
      if (Json value = SchemaDefault(member, facets); !value.is_null()) schema["default"] = std::move(value);
    }
    Add(name, std::move(schema), facets, when);
  }
  void Object(std::string_view name, std::string&, const Facets& facets, const When& when = {}) {
    Add(name, {{"type", "object"}}, facets, when);
  }
  void Ignored(std::string_view name, std::string_view doc) {
    properties_[std::string(name)] = {{"description", std::string(doc)}};
  }
  bool Wants(bool) const { return true; }

  Json Take() {
    Json schema = {{"type", "object"}, {"additionalProperties", false}};
    if (!required_.empty()) schema["required"] = std::move(required_);
    schema["properties"] = std::move(properties_);
    if (conditions_.empty()) return schema;
    for (auto& [condition, names] : conditions_) {
      Json forbidden = Json::object();
      for (const std::string& name : names) forbidden[name] = false;
      Json rule = Json::parse(condition);
      rule[rule.contains("unless") ? "else" : "then"] = {{"properties", std::move(forbidden)}};
      rule.erase("unless");
      schema["allOf"].push_back(std::move(rule));
    }
    return schema;
  }

 private:
  void Add(std::string_view name, Json schema, const Facets& facets, const When& when) {
    std::string description(facets.doc);
    if (facets.live) description += " May change while the job runs.";
    if (!facets.or_else.empty()) description += " Default: " + std::string(facets.or_else) + ".";
    if (!facets.local.empty()) description += " On one machine: " + std::string(facets.local);
    if (!when.words.empty()) {
      description += " Only with " + std::string(when.field) + ": ";
      for (size_t i = 0; i < when.words.size(); ++i)
        description += (i == 0 ? "" : ", ") + std::string(when.words[i]);
      description += ".";
    }
    schema["description"] = std::move(description);
    if (facets.required) required_.push_back(std::string(name));
    properties_[std::string(name)] = std::move(schema);
    if (!when.field.empty()) Condition(when).push_back(std::string(name));
  }

  std::vector<std::string>& Condition(const When& when) {
    const std::string field(when.field);
    Json rule;
    if (when.words.empty()) {
      rule["if"]["required"] = {field};
    } else {
      rule["if"]["properties"][field]["enum"] = when.words;
      // `holds` is said of the defaults: whether the rule is met when the field is absent.
      if (!when.holds) rule["if"]["required"] = {field};
      rule["unless"] = true;
    }
    return conditions_[rule.dump()];
  }

  static void Bounds(Json& schema, const Facets& facets) {
    if (std::isfinite(facets.min))
      schema[facets.above_min ? "exclusiveMinimum" : "minimum"] = Bound(facets.min);
    if (std::isfinite(facets.max))
      schema[facets.below_max ? "exclusiveMaximum" : "maximum"] = Bound(facets.max);
  }
  static Json Words(std::span<const std::string_view> words) {
    return {{"type", "string"}, {"enum", std::vector<std::string>(words.begin(), words.end())}};
  }
  static Json Text(const Facets& facets, std::string_view pattern) {
    Json schema = {{"type", "string"}};
    if (facets.required && pattern.empty()) schema["minLength"] = 1;
    if (facets.max_size < Facets{}.max_size) schema["maxLength"] = facets.max_size;
    schema["pattern"] = pattern.empty() ? "^[^\\u0000]*$" : std::string(pattern);
    return schema;
  }

  static Json Of(bool&, const Facets&) { return {{"type", "boolean"}}; }
  static Json Of(double&, const Facets& facets) {
    Json schema = {{"type", "number"}};
    Bounds(schema, facets);
    return schema;
  }
  template <class T>
  requires std::is_integral_v<T>
  static Json Of(T&, const Facets& facets) {
    Json schema = {{"type", "integer"}};
    if (facets.bytes) schema["type"] = {"integer", "string"};
    if (facets.bytes) schema["pattern"] = kQuantityPattern;
    Bounds(schema, facets);
    if (!schema.contains("maximum")) schema["maximum"] = INT64_MAX;
    return schema;
  }
  static Json Of(std::string&, const Facets& facets) {
    return facets.words.empty() ? Text(facets, facets.pattern) : Words(facets.words);
  }
  static Json Of(std::chrono::seconds&, const Facets& facets) {
    Json schema = {{"type", {"integer", "string"}}, {"pattern", kDurationPattern}};
    Bounds(schema, facets);
    return schema;
  }
  static Json Of(std::map<std::string, std::string>&, const Facets& facets) {
    return {{"type", "object"},
            {"maxProperties", facets.max_items},
            {"propertyNames", {{"maxLength", 320}, {"pattern", facets.key_pattern}}},
            {"additionalProperties", Text(facets, facets.pattern)}};
  }
  template <class E>
  requires std::is_enum_v<E>
  static Json Of(E&, const Facets&) { return Words(kNames<E>); }
  template <class T>
  static Json Of(std::optional<T>&, const Facets& facets) {
    T value{};
    return Of(value, facets);
  }
  template <class T>
  static Json Of(std::vector<T>&, const Facets& facets) {
    T value{};
    Facets item = facets;
    item.required = false;
    Json schema = {{"type", "array"}, {"maxItems", facets.max_items}};
    if (facets.min_items > 0) schema["minItems"] = facets.min_items;
    if (facets.distinct) schema["uniqueItems"] = true;
    schema["items"] = Of(value, item);
    return schema;
  }
  template <class T>
  requires std::is_class_v<T>
  static Json Of(T& value, const Facets&) {
    SchemaMaker maker;
    Describe(maker, value);
    return maker.Take();
  }

  Json properties_ = Json::object();
  std::vector<std::string> required_;
  std::map<std::string, std::vector<std::string>> conditions_;  // a rule's JSON -> the fields it forbids
};

}  // namespace

std::string Schema() {
  TrainingJob job;
  Role worker;
  std::vector<Role> roles;
  Manifest manifest{&job, &worker, &roles};
  SchemaMaker maker;
  Describe(maker, manifest);
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"$id", "https://lockstep.dev/schemas/trainingjob-v1alpha1.json"},
                 {"title", "TrainingJob"},
                 {"description", "A training job of Lockstep. See docs/manifest.md."}};
  schema.update(maker.Take());
  return schema.dump(2) + "\n";
}

}  // namespace lockstep::spec
