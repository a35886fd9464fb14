#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

// What a plain (unquoted) scalar is, and the two notations of Kubernetes that are strings to YAML.
namespace lockstep::spec {

struct Null {};
// A scalar that YAML 1.2's core schema and kubectl (sigs.k8s.io/yaml, whose go-yaml 2 reads much of YAML 1.1)
// read differently: `yes`, `on` and `n` are booleans there, `010` is 8, `1_000` is 1000, `0b11` is 3.
struct Ambiguous {
  std::string why;  // after "TEXT is ": what to whom; what to write instead
};
struct OutOfRange {};  // an integer beyond 64 bits, or a number beyond a double

// std::string_view: a string, `text` itself.
using ScalarValue = std::variant<Null, bool, int64_t, double, std::string_view, Ambiguous, OutOfRange>;
ScalarValue ResolvePlain(std::string_view text);

// Bytes of a Kubernetes quantity ("1Gi", "500M", "1e9", "0.5Ki"), a fraction of a byte rounded up; empty when
// it is not one, negative, or 2^63 and more.
std::optional<int64_t> ParseQuantity(std::string_view text);

// A Kubernetes (Go) duration of whole seconds ("30s", "1h30m", "1.5m"); empty when it is not one, negative,
// or has parts of a second.
std::optional<std::chrono::seconds> ParseDuration(std::string_view text);

// What ParseQuantity and ParseDuration read, for the schema.
inline constexpr char kQuantityPattern[] =
    "^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$";
// Of durations those without parts of a millisecond, as an API server's rules count.
inline constexpr char kDurationPattern[] = "^([0-9]+ms|[0-9]+([.][0-9]{0,3})?[smh])+$";

}  // namespace lockstep::spec
