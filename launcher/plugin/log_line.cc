#include "launcher/plugin/log_line.h"

#include <charconv>
#include <chrono>

#include "common/wall_time.h"

namespace lockstep::plugin {

namespace {

constexpr int64_t kSecond = 1'000'000'000;

// RFC 3339 with up to nine digits of a second, which ParseTime's microseconds would cut.
std::optional<int64_t> Nanoseconds(std::string_view text) {
  int64_t fraction = 0;
  std::string whole(text);
  if (const size_t dot = text.find('.'); dot != std::string_view::npos) {
    size_t end = dot + 1;
    int64_t unit = kSecond / 10;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9') {
      fraction += (text[end++] - '0') * unit;
      unit /= 10;
    }
    whole = std::string(text.substr(0, dot)).append(text.substr(end));
  }
  const auto time = ParseTime(whole);
  if (!time) return std::nullopt;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time->time_since_epoch()).count() + fraction;
}

}  // namespace

LogLine ParseLogLine(std::string_view line, int64_t fallback) {
  const size_t blank = line.find(' ');
  // The longest: "2026-01-31T12:00:00.123456789+01:00".
  if (const size_t end = blank == std::string_view::npos ? line.size() : blank; end <= 35) {
    if (const auto time = Nanoseconds(line.substr(0, end))) {
      return {.time = *time,
              .text = std::string(blank == std::string_view::npos ? "" : line.substr(blank + 1))};
    }
  }
  return {.time = fallback, .text = std::string(line)};
}

std::string SinceTime(int64_t time) {
  return FormatTime(std::chrono::sys_seconds(std::chrono::seconds(time / kSecond)));
}

std::optional<int> RankOf(std::string_view text) {
  constexpr std::string_view kStart = "[rank ";
  if (!text.starts_with(kStart)) return std::nullopt;
  text.remove_prefix(kStart.size());
  int rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error != std::errc() || rank < 0 || end == text.data() + text.size() || *end != ']')
    return std::nullopt;
  return rank;
}

}  // namespace lockstep::plugin
