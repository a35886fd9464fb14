#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <regex>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "launcher/spec/fields_job.h"
#include "launcher/spec/manifest.h"
#include "launcher/spec/quote.h"
#include "launcher/spec/yaml_tree.h"

// The visitor of fields.h that reads.
namespace lockstep::spec {

struct FieldError {
  Mark mark;
  std::string path;
  std::string what;
};

// Patterns compiled once a file: that takes longer than to read a small document.
class PatternCache {
 public:
  // Whether all of `text` matches.
  bool Matches(const std::string& text, std::string_view pattern);

 private:
  std::unordered_map<std::string_view, std::regex> patterns_;
};

// What the readers of one document share.
class ReadContext {
 public:
  explicit ReadContext(PatternCache* patterns) : patterns_(patterns) {}

  // Once full(), errors are only counted: a hostile manifest has more of them than anybody reads.
  void Add(Mark mark, std::string path, std::string what);
  bool full() const { return errors_.size() >= kMaxDiagnostics; }
  size_t count() const { return errors_.size() + dropped_; }
  size_t dropped() const { return dropped_; }
  const std::vector<FieldError>& errors() const { return errors_; }
  bool HasErrorAt(const std::string& path) const;

  bool Matches(const std::string& text, std::string_view pattern) {
    return patterns_->Matches(text, pattern);
  }

 private:
  std::vector<FieldError> errors_;
  size_t dropped_ = 0;
  PatternCache* patterns_;
};

// Reads the fields of one mapping, and by further readers those of the mappings in it. What is wrong becomes
// an error and leaves the member as it was. Node and context outlive the reader.
class FieldReader {
 public:
  FieldReader(const Node& map, std::string path, ReadContext* context)
      : map_(map), path_(std::move(path)), context_(context) {}

  template <class T>
  void operator()(std::string_view name, T& member, const Facets& facets, const When& when = {}) {
    if (const Node* node = Find(name, facets, when)) Read(*node, PathTo(path_, name), member, facets);
  }
  void Object(std::string_view name, std::string& json, const Facets& facets, const When& when = {});
  void Ignored(std::string_view name, std::string_view doc);
  bool Wants(bool) const { return true; }

  // Unknown keys become errors. After all fields.
  void Finish();

 private:
  // Null where the field is absent (or null) or must not be there.
  const Node* Find(std::string_view name, const Facets& facets, const When& when);
  void Fail(const Node& node, const std::string& path, std::string what);
  bool IsList(const Node& node, const std::string& path, const Facets& facets);
  bool IsMap(const Node& node, const std::string& path, const Facets& facets = {});
  void RefuseRepeated(const Node& list, const std::string& path);

  void Read(const Node& node, const std::string& path, bool& value, const Facets& facets);
  void Read(const Node& node, const std::string& path, double& value, const Facets& facets);
  void Read(const Node& node, const std::string& path, std::string& value, const Facets& facets);
  void Read(const Node& node, const std::string& path, std::chrono::seconds& value, const Facets& facets);
  void Read(const Node& node, const std::string& path, std::map<std::string, std::string>& value,
            const Facets& facets);
  std::optional<int64_t> Integer(const Node& node, const std::string& path, const Facets& facets,
                                 int64_t most);
  // The index of the word that `node` is.
  std::optional<size_t> Word(const Node& node, const std::string& path,
                             std::span<const std::string_view> words);

  template <class T>
  requires std::is_integral_v<T>
  void Read(const Node& node, const std::string& path, T& value, const Facets& facets) {
    constexpr int64_t kMost = sizeof(T) < sizeof(int64_t) ? std::numeric_limits<T>::max() : INT64_MAX;
    if (const auto read = Integer(node, path, facets, kMost)) value = static_cast<T>(*read);
  }

  template <class E>
  requires std::is_enum_v<E>
  void Read(const Node& node, const std::string& path, E& value, const Facets&) {
    if (const auto index = Word(node, path, kNames<E>)) value = static_cast<E>(*index);
  }

  template <class T>
  void Read(const Node& node, const std::string& path, std::optional<T>& value, const Facets& facets) {
    T read{};
    const size_t errors = context_->count();
    Read(node, path, read, facets);
    // A struct that is there stays there, so that nobody calls it missing; a number that is wrong does not.
    if (context_->count() == errors || std::is_class_v<T>) value = std::move(read);
  }

  template <class T>
  void Read(const Node& node, const std::string& path, std::vector<T>& value, const Facets& facets) {
    if (!IsList(node, path, facets)) return;
    value.clear();
    Facets item = facets;
    item.required = false;
    for (size_t i = 0; i < node.items.size(); ++i)
      Read(node.items[i], PathTo(path, i), value.emplace_back(), item);
    if (facets.distinct) RefuseRepeated(node, path);
  }

  template <class T>
  requires std::is_class_v<T>
  void Read(const Node& node, const std::string& path, T& value, const Facets&) {
    if (!IsMap(node, path)) return;
    FieldReader reader(node, path, context_);
    Describe(reader, value);
    reader.Finish();
  }

  const Node& map_;
  std::string path_;
  ReadContext* context_;
  std::vector<std::string_view> known_;
};

}  // namespace lockstep::spec
