#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// A YAML text as a small tree with places. The one place that knows the YAML library (libyaml, whose grammar
// is that of go-yaml and hence kubectl's; its memory and time are linear in the text, where yaml-cpp 0.7
// takes 0.6 s and 275 MiB to tokenise a megabyte of "[" before its first event).
namespace lockstep::spec {

struct Mark {
  int line = 0;    // from 1
  int column = 0;  // from 1, in characters
};

struct Node {
  enum class Kind : uint8_t { kScalar, kList, kMap };

  Kind kind = Kind::kScalar;
  bool quoted = false;  // a scalar in quotes, or a block scalar: always a string
  Mark mark;
  std::string text;         // of a scalar
  std::vector<Node> items;  // of a list; of a mapping: key, value, key, value …, in the order of the text

  // The value of the first key that reads `key`, or null.
  const Node* Find(std::string_view key) const;
};

struct YamlError {
  Mark mark;
  std::string path;  // of a duplicate key; otherwise empty
  std::string what;
};

struct YamlText {
  std::vector<Node> documents;    // those that are not empty
  std::vector<YamlError> errors;  // at most one of syntax or limits, the last; before it duplicate keys
};

// Never throws. Stops at the first error of syntax, at an anchor, alias or tag, and at a limit of manifest.h.
YamlText ParseYaml(std::string_view text);

}  // namespace lockstep::spec
