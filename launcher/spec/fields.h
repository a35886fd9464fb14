#pragma once

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/spec/enums.h"
#include "launcher/spec/training_job.h"

// The table of fields. fields_role.h, fields_trainer.h and fields_job.h have one function a struct,
//
//   template <class V> void Describe(V& field, Devices& devices) {
//     field("type", devices.type, {.doc = "…"});
//     …
//
// which names each field of the manifest once, with its member, what it may hold and what it means. A visitor
// makes of it the reader (read_fields.h), the writer (json.cc) or the schema and the reference (schema.cc).
//
// A visitor has
//   operator()(name, member, facets, when)   for every type below
//   Object(name, json, facets, when)         a mapping kept as it is, as JSON text
//   Ignored(name, doc)                       what a cluster writes there, read over
// and sees as members: bool, int, int64_t, uint64_t, double, std::string, std::chrono::seconds, enumerations
// with kNames, described structs, and optionals, vectors and string maps of these.
namespace lockstep::spec {

// What a field's value may be. Of a list, everything but the numbers of items is said of each item.
struct Facets {
  std::string_view doc;           // what it means; the first sentence alone must make sense
  std::string_view local = {};    // what it does on one machine, when that is not the same
  std::string_view or_else = {};  // the default, in words, when the struct's own does not say it
  bool required = false;
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  // greater than min, not equal
  bool below_max = false;
  bool bytes = false;  // a Kubernetes quantity
  size_t min_items = 0;
  size_t max_items = 1024;            // of a map as well
  bool distinct = false;              // no item twice
  bool live = false;                  // may change while the job runs; any other only while it is suspended
  bool local_default = false;         // the struct's default is a machine's; in a cluster there is another
  size_t max_size = 1 << 20;          // of a string, in bytes
  std::string_view pattern = {};      // of the whole string: ECMAScript; with max_size, at most 253
  std::string_view shape = {};        // the pattern in words, after "is not "
  std::string_view key_pattern = {};  // of a string map
  std::span<const std::string_view> words = {};  // the strings that may stand there
};

// When a field has a meaning. Elsewhere it is an error to give it. A visitor fills members in one after the
// other, so a When is made after the field that decides.
struct When {
  bool holds = true;
  std::string_view field = {};  // the field beside it that decides; empty: always
  std::vector<std::string_view> words =
      {};  // its values with which this field applies; empty: it must be absent
};

template <class E>
When If(std::string_view field, E value, std::initializer_list<E> any) {
  When when{.holds = std::find(any.begin(), any.end(), value) != any.end(), .field = field};
  for (const E one : any) when.words.push_back(Name(one));
  return when;
}

inline When Without(std::string_view field, bool absent) { return {.holds = absent, .field = field}; }

inline constexpr size_t kMaxPath = 4096;
inline constexpr double kMaxMemory = 1152921504606846976.0;  // 1 EiB
// Of a quantity and of a duration, in characters.
inline constexpr size_t kMaxNotation = 64;

}  // namespace lockstep::spec
