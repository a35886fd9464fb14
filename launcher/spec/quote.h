#pragma once

#include <span>
#include <string>
#include <string_view>

// Words of error messages.
namespace lockstep::spec {

// `text` in double quotes, control characters escaped, at most 60 bytes of it (never half a character).
std::string Quoted(std::string_view text);

// Control characters as \xNN, so that no manifest can write to a terminal.
std::string Printable(std::string_view text);

// The path of a field's field or of a list's element: "spec.roles[0].devices",
// metadata.labels["example.com/team"].
std::string PathTo(const std::string& path, std::string_view key);
std::string PathTo(const std::string& path, size_t index);

// "A, B, C".
std::string Joined(std::span<const std::string_view> words);

// The word nearest to `text` by edit distance, letters' case counting little, or empty where none is near
// enough to be what was meant.
std::string_view Nearest(std::string_view text, std::span<const std::string_view> words);

}  // namespace lockstep::spec
