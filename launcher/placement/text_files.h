#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The small text files of /proc and /sys, and the lists of numbers in them.
namespace lockstep::placement {

inline constexpr size_t kMaxTextFileBytes = 256 * 1024;

// The first `limit` bytes of a file; empty when it cannot be read.
std::optional<std::string> ReadText(const std::filesystem::path& path, size_t limit = kMaxTextFileBytes);

// A decimal integer with blanks around it, and nothing else.
std::optional<int64_t> ParseInteger(std::string_view text);
std::optional<int64_t> ReadInteger(const std::filesystem::path& path);

// The kernel's list format: "0-3,8,10-11" is {0, 1, 2, 3, 8, 10, 11}. Empty when it is not one; "" is an
// empty list.
std::optional<std::vector<int>> ParseNumberList(std::string_view text);
// And back. `numbers` ascending.
std::string FormatNumberList(const std::vector<int>& numbers);

std::string_view Trim(std::string_view text);
std::vector<std::string_view> Split(std::string_view text, char separator);

}  // namespace lockstep::placement
