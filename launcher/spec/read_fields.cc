#include "launcher/spec/read_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "launcher/spec/scalar.h"

namespace lockstep::spec {

namespace {

// libstdc++'s matcher recurses once a character.
constexpr size_t kLongestMatched = 320;

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

std::string Number(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return {text, end};
}

ScalarValue Resolve(const Node& node) {
  return node.quoted ? ScalarValue(std::string_view(node.text)) : ResolvePlain(node.text);
}

// "4.5", "\"x\" is a string": what stands there, as the beginning of a sentence.
std::string Found(const Node& node) {
  if (node.kind == Node::Kind::kList) return "a list stands here";
  if (node.kind == Node::Kind::kMap) return "a mapping stands here";
  const std::string text = Printable(node.text.substr(0, 60));
  return std::visit(
      Overloaded{[](Null) { return std::string("nothing stands here"); },
                 [&](bool) { return text + " is a boolean"; }, [&](int64_t) { return text + " is a number"; },
                 [&](double number) {
                   return text + (number == std::floor(number) ? " is a number" : " is a fraction");
                 },
                 [&](std::string_view string) { return Quoted(string) + " is a string"; },
                 [&](const Ambiguous& ambiguous) { return text + " is " + ambiguous.why; },
                 [&](OutOfRange) { return text + " is out of range"; }},
      Resolve(node));
}

bool IsAmbiguous(const Node& node) {
  return node.kind == Node::Kind::kScalar && std::holds_alternative<Ambiguous>(Resolve(node));
}

std::string Needs(const Node& node, const std::string& what) {
  return IsAmbiguous(node) ? Found(node) : Found(node) + "; " + what;
}

// What is wrong with a number that must be in [min, max] or in one of the half-open or open intervals of
// them.
std::string Misses(double value, const Facets& facets) {
  const bool small = facets.above_min ? value <= facets.min : value < facets.min;
  const bool large = facets.below_max ? value >= facets.max : value > facets.max;
  if (small)
    return " is too small; " + std::string(facets.above_min ? "more than " : "at least ") +
           Number(facets.min);
  if (large)
    return " is too large; " + std::string(facets.below_max ? "less than " : "at most ") + Number(facets.max);
  return "";
}

// "write kind: TrainingJob", or "give it: the first sentence of what it means".
std::string Wanted(std::string_view name, const Facets& facets) {
  if (facets.words.size() == 1) return "write " + std::string(name) + ": " + std::string(facets.words[0]);
  return "give it: " + std::string(facets.doc.substr(0, facets.doc.find_first_of(".;:")));
}

std::string OneOf(std::string_view text, std::span<const std::string_view> words) {
  if (words.size() == 1)
    return Quoted(text) + " is not " + std::string(words[0]) + "; write " + std::string(words[0]);
  std::string what = Quoted(text) + " is not one of " + Joined(words);
  if (const auto nearest = Nearest(text, words); !nearest.empty())
    what += "; did you mean " + std::string(nearest) + "?";
  return what;
}

}  // namespace

void ReadContext::Add(Mark mark, std::string path, std::string what) {
  if (full()) {
    ++dropped_;
  } else {
    errors_.push_back({mark, std::move(path), std::move(what)});
  }
}

bool ReadContext::HasErrorAt(const std::string& path) const {
  return std::any_of(errors_.begin(), errors_.end(),
                     [&](const FieldError& error) { return error.path == path; });
}

bool PatternCache::Matches(const std::string& text, std::string_view pattern) {
  if (text.size() > kLongestMatched) return false;
  const auto [entry, added] = patterns_.try_emplace(pattern);
  if (added) entry->second.assign(pattern.begin(), pattern.end());
  return std::regex_match(text, entry->second);
}

const Node* FieldReader::Find(std::string_view name, const Facets& facets, const When& when) {
  known_.push_back(name);
  const Node* node = map_.Find(name);
  const bool absent = node == nullptr || (node->kind == Node::Kind::kScalar && !node->quoted &&
                                          std::holds_alternative<Null>(ResolvePlain(node->text)));
  if (absent) {
    if (facets.required && when.holds) {
      Fail(node == nullptr ? map_ : *node, PathTo(path_, name), "is missing; " + Wanted(name, facets));
    }
    return nullptr;
  }
  if (when.holds) return node;
  // What decides could not be read: it may well have been meant to allow this.
  if (context_->HasErrorAt(PathTo(path_, when.field))) return nullptr;
  const std::string other(when.field);
  if (when.words.empty()) {
    Fail(*node, PathTo(path_, name), "excludes " + other + ", which is given too; keep one of them");
  } else {
    Fail(*node, PathTo(path_, name),
         "has no meaning here; leave it out, or use it with " + other + ": " + Joined(when.words));
  }
  return nullptr;
}

void FieldReader::Ignored(std::string_view name, std::string_view) { known_.push_back(name); }

void FieldReader::Finish() {
  for (size_t i = 0; i + 1 < map_.items.size(); i += 2) {
    const Node& key = map_.items[i];
    const bool merge = !key.quoted && key.text == "<<";  // an error already
    if (context_->full()) return;
    if (merge || std::find(known_.begin(), known_.end(), key.text) != known_.end()) continue;
    std::string what = "is not a field of " + (path_.empty() ? "a TrainingJob" : path_);
    const auto nearest = Nearest(key.text, known_);
    what += nearest.empty() ? "; its fields are " + Joined(known_)
                            : "; did you mean " + std::string(nearest) + "?";
    Fail(key, PathTo(path_, key.text), what);
  }
}

void FieldReader::Fail(const Node& node, const std::string& path, std::string what) {
  context_->Add(node.mark, path, std::move(what));
}

bool FieldReader::IsList(const Node& node, const std::string& path, const Facets& facets) {
  if (node.kind != Node::Kind::kList) {
    Fail(node, path, Needs(node, "a list is needed"));
    return false;
  }
  if (node.items.size() < facets.min_items) {
    Fail(node, path,
         std::string("the list is empty; give at least one item") +
             (facets.required ? "" : ", or leave the field out"));
    return false;
  }
  if (node.items.size() > facets.max_items) {
    Fail(node, path,
         "has " + std::to_string(node.items.size()) + " items; at most " + std::to_string(facets.max_items));
    return false;
  }
  return true;
}

bool FieldReader::IsMap(const Node& node, const std::string& path, const Facets& facets) {
  if (node.kind != Node::Kind::kMap) {
    Fail(node, path, Needs(node, "a mapping (name: value) is needed"));
    return false;
  }
  if (node.items.size() / 2 > facets.max_items) {
    Fail(node, path,
         "has " + std::to_string(node.items.size() / 2) + " entries; at most " +
             std::to_string(facets.max_items));
    return false;
  }
  return true;
}

void FieldReader::RefuseRepeated(const Node& list, const std::string& path) {
  std::unordered_map<std::string_view, size_t> seen;
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (list.items[i].kind != Node::Kind::kScalar) continue;
    const auto [first, added] = seen.emplace(list.items[i].text, i);
    if (added) continue;
    Fail(list.items[i], PathTo(path, i),
         Quoted(list.items[i].text) + " is here twice; leave out one of [" + std::to_string(first->second) +
             "] and [" + std::to_string(i) + "]");
  }
}

void FieldReader::Read(const Node& node, const std::string& path, bool& value, const Facets&) {
  const auto scalar = node.kind == Node::Kind::kScalar ? Resolve(node) : ScalarValue(Null{});
  if (const bool* read = std::get_if<bool>(&scalar)) {
    value = *read;
  } else {
    Fail(node, path, Needs(node, "true or false is needed, without quotes"));
  }
}

void FieldReader::Read(const Node& node, const std::string& path, double& value, const Facets& facets) {
  const auto scalar = node.kind == Node::Kind::kScalar ? Resolve(node) : ScalarValue(Null{});
  double read = 0;
  if (const double* number = std::get_if<double>(&scalar)) {
    read = *number;
  } else if (const int64_t* integer = std::get_if<int64_t>(&scalar)) {
    read = static_cast<double>(*integer);
  } else {
    return Fail(node, path, Needs(node, "a number is needed, without quotes"));
  }
  if (const std::string misses = Misses(read, facets); !misses.empty())
    return Fail(node, path, node.text + misses);
  value = read;
}

std::optional<int64_t> FieldReader::Integer(const Node& node, const std::string& path, const Facets& facets,
                                            int64_t most) {
  const auto scalar = node.kind == Node::Kind::kScalar ? Resolve(node) : ScalarValue(Null{});
  std::optional<int64_t> read;
  if (const int64_t* integer = std::get_if<int64_t>(&scalar)) {
    read = *integer;
  } else if (const double* number = std::get_if<double>(&scalar)) {
    // 1e3 is a whole number to the API server as well. Beyond 2^53 a double no longer says which one it is.
    constexpr double kExact = 9007199254740992.0;
    if (*number == std::floor(*number) && std::abs(*number) <= kExact) read = static_cast<int64_t>(*number);
  } else if (const auto* text = std::get_if<std::string_view>(&scalar); text != nullptr && facets.bytes) {
    if (text->size() <= kMaxNotation) read = ParseQuantity(*text);
    if (!read) {
      Fail(node, path,
           Quoted(*text) + " is not a quantity of bytes below 2^63; write for example 1Gi, 500M or 1e9");
      return std::nullopt;
    }
  }
  if (!read) {
    Fail(node, path,
         Needs(node, facets.bytes ? "bytes are needed: 1Gi, 500M, 1e9" : "a whole number is needed"));
    return std::nullopt;
  }
  std::string misses = Misses(static_cast<double>(*read), facets);
  if (misses.empty() && *read > most) misses = " is too large; at most " + std::to_string(most);
  if (!misses.empty()) {
    Fail(node, path, Printable(node.text) + misses);
    return std::nullopt;
  }
  return read;
}

void FieldReader::Read(const Node& node, const std::string& path, std::string& value, const Facets& facets) {
  if (!facets.words.empty()) {
    if (const auto index = Word(node, path, facets.words)) value = facets.words[*index];
    return;
  }
  const auto scalar = node.kind == Node::Kind::kScalar ? Resolve(node) : ScalarValue(Null{});
  if (!std::holds_alternative<std::string_view>(scalar)) {
    const bool quotable = node.kind == Node::Kind::kScalar && !std::holds_alternative<Null>(scalar);
    return Fail(
        node, path,
        Needs(node, quotable ? "a string is needed: write " + Quoted(node.text) : "a string is needed"));
  }
  if (node.text.find('\0') != std::string::npos) {
    return Fail(node, path, Quoted(node.text) + " holds a NUL character; leave it out");
  }
  if (node.text.empty() && (facets.required || !facets.pattern.empty()) &&
      (facets.pattern.empty() || !context_->Matches("", facets.pattern))) {
    return Fail(node, path,
                "is empty; give " + std::string(facets.shape.empty() ? "a name" : facets.shape) +
                    (facets.required ? "" : ", or leave the field out"));
  }
  if (node.text.size() > facets.max_size) {
    return Fail(node, path,
                Quoted(node.text) + " has " + std::to_string(node.text.size()) + " characters; at most " +
                    std::to_string(facets.max_size));
  }
  if (!facets.pattern.empty() && !context_->Matches(node.text, facets.pattern)) {
    return Fail(node, path, Quoted(node.text) + " is wrong; give " + std::string(facets.shape));
  }
  value = node.text;
}

void FieldReader::Read(const Node& node, const std::string& path, std::chrono::seconds& value,
                       const Facets& facets) {
  const auto scalar = node.kind == Node::Kind::kScalar ? Resolve(node) : ScalarValue(Null{});
  if (const auto* text = std::get_if<std::string_view>(&scalar)) {
    const bool written =
        text->size() <= kMaxNotation && context_->Matches(std::string(*text), kDurationPattern);
    const auto duration = written ? ParseDuration(*text) : std::nullopt;
    if (!duration)
      return Fail(node, path, Quoted(*text) + " is no duration of whole seconds; write 30, 30s or 1h30m");
    const std::string misses = Misses(static_cast<double>(duration->count()), facets);
    if (!misses.empty()) return Fail(node, path, std::string(*text) + misses + " seconds");
    value = *duration;
  } else if (IsAmbiguous(node) || node.kind != Node::Kind::kScalar || std::holds_alternative<bool>(scalar)) {
    Fail(node, path, Needs(node, "seconds are needed: 30, 30s or 1h30m"));
  } else if (const auto seconds = Integer(node, path, facets, INT64_MAX)) {
    value = std::chrono::seconds(*seconds);
  }
}

void FieldReader::Read(const Node& node, const std::string& path, std::map<std::string, std::string>& value,
                       const Facets& facets) {
  if (!IsMap(node, path, facets)) return;
  for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
    const Node& key = node.items[i];
    const std::string item = PathTo(path, key.text);
    if (IsAmbiguous(key)) {
      Fail(key, item, Found(key));
    } else if (!context_->Matches(key.text, facets.key_pattern)) {
      Fail(key, item,
           "is wrong as a key; a name of at most 63 letters, digits, -, _ and ., after a domain and / or "
           "alone");
    } else {
      Read(node.items[i + 1], item, value[key.text], facets);
    }
  }
}

std::optional<size_t> FieldReader::Word(const Node& node, const std::string& path,
                                        std::span<const std::string_view> words) {
  const auto scalar = node.kind == Node::Kind::kScalar ? Resolve(node) : ScalarValue(Null{});
  const auto* text = std::get_if<std::string_view>(&scalar);
  if (text == nullptr) {
    Fail(node, path, Needs(node, "one of " + Joined(words) + " is needed"));
    return std::nullopt;
  }
  const auto word = std::find(words.begin(), words.end(), *text);
  if (word != words.end()) return static_cast<size_t>(word - words.begin());
  Fail(node, path, OneOf(*text, words));
  return std::nullopt;
}

namespace {

nlohmann::ordered_json ToJsonValue(const Node& node, const std::string& path, ReadContext* context) {
  using Json = nlohmann::ordered_json;
  if (node.kind == Node::Kind::kList) {
    Json list = Json::array();
    for (size_t i = 0; i < node.items.size(); ++i) {
      list.push_back(ToJsonValue(node.items[i], PathTo(path, i), context));
    }
    return list;
  }
  if (node.kind == Node::Kind::kMap) {
    // Appended without a search, which would be quadratic; duplicates are errors already.
    Json::object_t object;
    for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
      const std::string item = PathTo(path, node.items[i].text);
      if (IsAmbiguous(node.items[i])) context->Add(node.items[i].mark, item, Found(node.items[i]));
      object.push_back({node.items[i].text, ToJsonValue(node.items[i + 1], item, context)});
    }
    return object;
  }
  return std::visit(
      Overloaded{[](Null) { return Json(nullptr); }, [](bool value) { return Json(value); },
                 [](int64_t value) { return Json(value); }, [](double value) { return Json(value); },
                 [](std::string_view value) { return Json(value); },
                 [&](const Ambiguous&) {
                   context->Add(node.mark, path, Found(node));
                   return Json(nullptr);
                 },
                 [&](OutOfRange) {
                   context->Add(node.mark, path, Found(node) + "; quote it for a string");
                   return Json(nullptr);
                 }},
      Resolve(node));
}

}  // namespace

void FieldReader::Object(std::string_view name, std::string& json, const Facets& facets, const When& when) {
  const Node* node = Find(name, facets, when);
  const std::string path = PathTo(path_, name);
  if (node == nullptr || !IsMap(*node, path)) return;
  const auto object = ToJsonValue(*node, path, context_);
  if (!object.empty()) json = object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace lockstep::spec
