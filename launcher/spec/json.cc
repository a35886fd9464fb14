#include "launcher/spec/json.h"

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "launcher/spec/fields_job.h"

namespace lockstep::spec {

namespace {

using Json = nlohmann::ordered_json;

// The visitor of fields.h that writes.
class FieldWriter {
 public:
  template <class T>
  void operator()(std::string_view name, T& member, const Facets&, const When& when = {}) {
    if (!when.holds) return;
    if (IsGiven(member)) {
      object_[std::string(name)] = Write(member);
    }
  }
  void Object(std::string_view name, std::string& json, const Facets&, const When& when = {}) {
    if (when.holds && !json.empty()) object_[std::string(name)] = Json::parse(json, nullptr, false);
  }
  void Ignored(std::string_view, std::string_view) {}
  bool Wants(bool holds) const { return holds; }

  Json Take() { return std::move(object_); }

 private:
  template <class T>
  static bool IsGiven(const T&) {
    return true;
  }
  static bool IsGiven(const std::string& text) { return !text.empty(); }
  static bool IsGiven(const std::map<std::string, std::string>& map) { return !map.empty(); }
  template <class T>
  static bool IsGiven(const std::optional<T>& value) {
    return value.has_value();
  }
  template <class T>
  static bool IsGiven(const std::vector<T>& list) {
    return !list.empty();
  }

  template <class T>
  requires std::is_arithmetic_v<T>
  static Json Write(T value) { return value; }
  static Json Write(std::string& text) { return text; }
  static Json Write(std::chrono::seconds duration) { return duration.count(); }
  static Json Write(std::map<std::string, std::string>& map) {
    Json object = Json::object();
    for (const auto& [key, value] : map) object[key] = value;
    return object;
  }
  template <class E>
  requires std::is_enum_v<E>
  static Json Write(E value) { return std::string(Name(value)); }
  template <class T>
  static Json Write(std::optional<T>& value) {
    return Write(*value);
  }
  template <class T>
  static Json Write(std::vector<T>& list) {
    Json array = Json::array();
    for (T& item : list) array.push_back(Write(item));
    return array;
  }
  template <class T>
  requires std::is_class_v<T>
  static Json Write(T& value) {
    FieldWriter writer;
    Describe(writer, value);
    return writer.Take();
  }

  Json object_ = Json::object();
};

// Characters that JSON may hold as they are and a YAML reader refuses or takes for line breaks.
std::string EscapedForYaml(const std::string& json) {
  constexpr std::pair<std::string_view, std::string_view> kEscapes[] = {
      {"\x7f", "\\u007f"},         {"\xe2\x80\xa8", "\\u2028"}, {"\xe2\x80\xa9", "\\u2029"},
      {"\xef\xbb\xbf", "\\ufeff"}, {"\xef\xbf\xbe", "\\ufffe"}, {"\xef\xbf\xbf", "\\uffff"}};
  std::string out;
  out.reserve(json.size());
  for (size_t i = 0; i < json.size();) {
    const std::string_view rest = std::string_view(json).substr(i);
    const auto byte = static_cast<unsigned char>(rest[0]);
    if (byte == 0xc2 && rest.size() > 1 && static_cast<unsigned char>(rest[1]) < 0xa0) {
      constexpr std::string_view kHex = "0123456789abcdef";
      const auto code = static_cast<unsigned char>(rest[1]);
      out += {'\\', 'u', '0', '0', kHex[code >> 4], kHex[code & 15]};
      i += 2;
      continue;
    }
    size_t taken = 0;
    if (byte >= 0x7f) {
      for (const auto& [raw, escape] : kEscapes) {
        if (!rest.starts_with(raw)) continue;
        out += escape;
        taken = raw.size();
        break;
      }
    }
    if (taken == 0) out += rest[0];
    i += std::max<size_t>(taken, 1);
  }
  return out;
}

}  // namespace

std::string ToJson(const TrainingJob& job, int indent) {
  TrainingJob copy = job;
  const bool short_form = copy.roles.size() == 1 && copy.roles[0].name == "worker" && !copy.roles[0].program;
  Role worker = short_form ? copy.roles[0] : Role{};
  std::vector<Role> roles = short_form ? std::vector<Role>{} : copy.roles;
  Manifest manifest{&copy, &worker, &roles};
  FieldWriter writer;
  Describe(writer, manifest);
  return EscapedForYaml(writer.Take().dump(indent, ' ', false, Json::error_handler_t::replace));
}

}  // namespace lockstep::spec
