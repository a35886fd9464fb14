#include "launcher/spec/crd.h"

#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "launcher/spec/crd_rules.h"
#include "launcher/spec/crd_status.h"
#include "launcher/spec/fields_job.h"
#include "launcher/spec/scalar.h"
#include "launcher/spec/schema_default.h"
#include "launcher/spec/yaml_out.h"

namespace lockstep::spec {

namespace {

using Json = nlohmann::ordered_json;

Json Bound(double value) {
  constexpr double kExact = 9223372036854775808.0;
  if (value == std::floor(value) && std::abs(value) < kExact) return static_cast<int64_t>(value);
  return value;
}

std::string Listed(const std::vector<std::string_view>& words, std::string_view quote) {
  std::string list;
  for (const std::string_view word : words)
    list += (list.empty() ? "" : ", ") + std::string(quote) + std::string(word) + std::string(quote);
  return list;
}

// The visitor of fields.h that makes a structural schema of one mapping, from a struct that holds its
// defaults.
class CrdMaker {
 public:
  template <class T>
  void operator()(std::string_view name, T& member, const Facets& facets, const When& when = {}) {
    Json schema = Of(member, facets);
    // A default that does not always apply would break the rule that says so.
    if (!facets.required && facets.or_else.empty() && !facets.local_default && when.field.empty()) {
      if (Json value = SchemaDefault(member, facets); !value.is_null()) schema["default"] = std::move(value);
    }
    Add(name, std::move(schema), facets, when);
  }
  void Object(std::string_view name, std::string&, const Facets& facets, const When& when = {}) {
    Add(name, {{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}}, facets, when);
  }
  void Ignored(std::string_view, std::string_view) {}
  bool Wants(bool) const { return true; }

  Json Take(CelRules more) {
    Json schema = {{"type", "object"}};
    if (!required_.empty()) schema["required"] = std::move(required_);
    schema["properties"] = std::move(properties_);
    for (auto& [condition, fields] : conditions_) {
      std::string none;
      for (const std::string_view field : fields)
        none += std::string(none.empty() ? "!" : " && !") + "has(self." + std::string(field) + ")";
      rules_.push_back(
          {condition.first + " || (" + none + ")",
           Listed(fields, "") + (fields.size() == 1 ? " has" : " have") + " no meaning " + condition.second});
    }
    rules_.insert(rules_.end(), more.begin(), more.end());
    for (const CelRule& rule : rules_)
      schema["x-kubernetes-validations"].push_back({{"rule", rule.rule}, {"message", rule.message}});
    return schema;
  }

 private:
  void Add(std::string_view name, Json schema, const Facets& facets, const When& when) {
    std::string description(facets.doc);
    if (facets.live) description += " May change while the job runs.";
    if (!facets.or_else.empty()) description += " Default: " + std::string(facets.or_else) + ".";
    if (!when.words.empty())
      description += " Only with " + std::string(when.field) + ": " + Listed(when.words, "") + ".";
    schema["description"] = std::move(description);
    if (facets.required) required_.push_back(std::string(name));
    properties_[std::string(name)] = std::move(schema);
    if (!when.field.empty()) Condition(when).push_back(name);
  }

  // The fields that may be there only when the first text, an expression, holds.
  std::vector<std::string_view>& Condition(const When& when) {
    const std::string field = "self." + std::string(when.field);
    if (when.words.empty()) {
      return conditions_[{"!has(" + field + ")", "with " + std::string(when.field) + "; keep one of them"}];
    }
    // `holds` is said of the defaults: whether the rule is met when the field is absent.
    const bool decided = properties_[std::string(when.field)].contains("default") ||
                         std::find(required_.begin(), required_.end(), when.field) != required_.end();
    std::string test = field + " in [" + Listed(when.words, "'") + "]";
    if (!decided) test = (when.holds ? "!has(" + field + ") || " : "has(" + field + ") && ") + test;
    return conditions_[{decided ? test : "(" + test + ")",
                        "here; use it with " + std::string(when.field) + ": " + Listed(when.words, "")}];
  }

  static void Bounds(Json& schema, const Facets& facets) {
    if (std::isfinite(facets.min)) schema["minimum"] = Bound(facets.min);
    if (facets.above_min) schema["exclusiveMinimum"] = true;
    if (std::isfinite(facets.max)) schema["maximum"] = Bound(facets.max);
    if (facets.below_max) schema["exclusiveMaximum"] = true;
  }
  static Json Words(std::span<const std::string_view> words) {
    return {{"type", "string"}, {"enum", std::vector<std::string>(words.begin(), words.end())}};
  }
  static Json Text(const Facets& facets, std::string_view pattern) {
    Json schema = {{"type", "string"}};
    if (facets.required && pattern.empty()) schema["minLength"] = 1;
    if (facets.max_size < Facets{}.max_size) schema["maxLength"] = facets.max_size;
    schema["pattern"] = pattern.empty() ? "^[^\\x00]*$" : std::string(pattern);
    return schema;
  }
  // An integer, or a string of `pattern` for which the rule `text` holds.
  static Json Notation(const Facets& facets, std::string_view pattern, const std::string& text,
                       const std::string& message) {
    Json schema = {
        {"x-kubernetes-int-or-string", true}, {"maxLength", kMaxNotation}, {"pattern", std::string(pattern)}};
    Bounds(schema, facets);
    schema["x-kubernetes-validations"] = {{{"rule", "type(self) == int || " + text}, {"message", message}}};
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
    if (facets.bytes) {
      return Notation(
          facets, kQuantityPattern,
          "(quantity(self).isGreaterThan(quantity('0')) && !quantity(self).isGreaterThan(quantity('1Ei')))",
          "more than nothing and at most 1Ei: 1Gi, 500M, 1e9");
    }
    Json schema = {{"type", "integer"}, {"format", "int64"}};
    Bounds(schema, facets);
    return schema;
  }
  static Json Of(std::string& value, const Facets& facets) {
    if (!facets.words.empty()) return Words(facets.words);
    Json schema = Text(facets, facets.pattern);
    if (std::string_view(facets.shape).starts_with("an IP address")) {
      schema.erase("pattern");
      schema["anyOf"] = {{{"format", "ipv4"}}, {{"format", "ipv6"}}};
    }
    (void)value;
    return schema;
  }
  static Json Of(std::chrono::seconds&, const Facets& facets) {
    const std::string least = std::to_string(static_cast<int64_t>(facets.min));
    const std::string most = std::to_string(static_cast<int64_t>(facets.max));
    return Notation(facets, kDurationPattern,
                    "(duration(self) >= duration('" + least + "s') && duration(self) <= duration('" + most +
                        "s') && duration(self).getMilliseconds() % 1000 == 0)",
                    "whole seconds from " + least + " to " + most + ": 30, 30s or 1h30m");
  }
  static Json Of(std::map<std::string, std::string>&, const Facets& facets) {
    return {{"type", "object"}, {"additionalProperties", Text(facets, facets.pattern)}};
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
    constexpr bool kNamed = std::is_same_v<T, Role> || std::is_same_v<T, std::pair<std::string, std::string>>;
    schema["x-kubernetes-list-type"] = kNamed ? "map" : facets.distinct ? "set" : "atomic";
    if (kNamed) schema["x-kubernetes-list-map-keys"] = {"name"};
    schema["items"] = Of(value, item);
    return schema;
  }
  template <class T>
  requires std::is_class_v<T>
  static Json Of(T& value, const Facets&) {
    CrdMaker maker;
    Describe(maker, value);
    return maker.Take(RulesOf(static_cast<const T*>(nullptr)));
  }

  Json properties_ = Json::object();
  std::vector<std::string> required_;
  // An expression and the end of its message -> the fields it allows.
  std::map<std::pair<std::string, std::string>, std::vector<std::string_view>> conditions_;
  CelRules rules_;
};

}  // namespace

std::string CustomResourceDefinition() {
  TrainingJob job;
  Role worker;
  std::vector<Role> roles;
  Manifest manifest{&job, &worker, &roles};
  CrdMaker maker;
  Describe(maker, manifest);
  Json schema = maker.Take({});
  schema["description"] =
      "A training job: what is trained, on how many machines and devices, and what happens when "
      "something fails.";
  Json& properties = schema["properties"];
  // The server's own; of the metadata a schema may restrict the name only.
  properties["apiVersion"] = {{"type", "string"}};
  properties["kind"] = {{"type", "string"}};
  Json name = properties["metadata"]["properties"]["name"];
  name.erase("description");
  properties["metadata"] = {{"type", "object"}, {"properties", {{"name", std::move(name)}}}};
  properties["status"] = StatusSchema();
  schema["required"] = {"metadata", "spec"};

  const Json version = {{"name", "v1alpha1"},
                        {"served", true},
                        {"storage", true},
                        {"subresources", {{"status", Json::object()}}},
                        {"additionalPrinterColumns", PrinterColumns()},
                        {"schema", {{"openAPIV3Schema", std::move(schema)}}}};
  const Json names = {{"kind", kKind},
                      {"listKind", "TrainingJobList"},
                      {"plural", "trainingjobs"},
                      {"singular", "trainingjob"},
                      {"shortNames", {"tjob"}},
                      {"categories", {"all"}}};
  return "# Made by `lockstep schema --crd`.\n" +
         ToYaml({{"apiVersion", "apiextensions.k8s.io/v1"},
                 {"kind", "CustomResourceDefinition"},
                 {"metadata", {{"name", "trainingjobs.lockstep.dev"}}},
                 {"spec",
                  {{"group", "lockstep.dev"},
                   {"scope", "Namespaced"},
                   {"names", names},
                   {"versions", Json::array({version})}}}});
}

}  // namespace lockstep::spec
