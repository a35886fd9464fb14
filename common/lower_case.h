#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace lockstep {

// ASCII's letters alone: of names that programs compare, in any locale.
constexpr char LowerCase(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

inline std::string LowerCase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return LowerCase(c); });
  return lower;
}

}  // namespace lockstep
