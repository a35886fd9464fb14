#include "launcher/placement/text_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>

#include "common/unique_fd.h"

namespace lockstep::placement {
namespace {

constexpr int kMaxNumber = 1 << 16;  // more CPUs than Linux can be built for

}  // namespace

std::optional<std::string> ReadText(const std::filesystem::path& path, size_t limit) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  std::string text;
  char buffer[4096];
  while (text.size() < limit) {
    const ssize_t count = ::read(fd.get(), buffer, std::min(sizeof(buffer), limit - text.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<int64_t> ParseInteger(std::string_view text) {
  text = Trim(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> ReadInteger(const std::filesystem::path& path) {
  const auto text = ReadText(path, 64);
  return text ? ParseInteger(*text) : std::nullopt;
}

std::optional<std::vector<int>> ParseNumberList(std::string_view text) {
  std::vector<int> numbers;
  if (Trim(text).empty()) return numbers;
  for (const std::string_view part : Split(text, ',')) {
    const size_t dash = part.find('-');
    const auto first = ParseInteger(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : ParseInteger(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMaxNumber) return std::nullopt;
    for (int64_t number = *first; number <= *last; ++number) numbers.push_back(static_cast<int>(number));
  }
  return numbers;
}

std::string FormatNumberList(const std::vector<int>& numbers) {
  std::string text;
  for (size_t first = 0; first < numbers.size();) {
    size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(numbers[first]);
    if (last > first) text += '-' + std::to_string(numbers[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace lockstep::placement
