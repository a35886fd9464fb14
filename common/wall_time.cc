#include "common/wall_time.h"

#include <array>
#include <cstdint>
#include <cstdio>

namespace lockstep {

namespace {

using std::chrono::days;
using std::chrono::microseconds;
using std::chrono::seconds;

// Takes `count` digits off `text`.
std::optional<int> Digits(std::string_view& text, size_t count) {
  if (text.size() < count) return std::nullopt;
  int value = 0;
  for (const char c : text.substr(0, count)) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  text.remove_prefix(count);
  return value;
}

bool Skip(std::string_view& text, char wanted) {
  if (!text.starts_with(wanted)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string FormatTime(std::chrono::system_clock::time_point time, TimeParts parts) {
  const auto day = std::chrono::floor<days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(std::chrono::floor<microseconds>(time - day));
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%04d-%02u-%02uT%02d:%02d:%02d", int{date.year()},
                unsigned{date.month()}, unsigned{date.day()}, static_cast<int>(clock.hours().count()),
                static_cast<int>(clock.minutes().count()), static_cast<int>(clock.seconds().count()));
  std::string formatted(text.data());
  if (parts != TimeParts::kSeconds) {
    const int micros = static_cast<int>(clock.subseconds().count());
    parts == TimeParts::kMilliseconds ? std::snprintf(text.data(), text.size(), ".%03d", micros / 1000)
                                      : std::snprintf(text.data(), text.size(), ".%06d", micros);
    formatted += text.data();
  }
  return formatted + "Z";
}

std::optional<WallTime> ParseTime(std::string_view text) {
  const auto year = Digits(text, 4);
  if (!year || !Skip(text, '-')) return std::nullopt;
  const auto month = Digits(text, 2);
  if (!month || !Skip(text, '-')) return std::nullopt;
  const auto day = Digits(text, 2);
  if (!day || !(Skip(text, 'T') || Skip(text, 't'))) return std::nullopt;
  const auto hour = Digits(text, 2);
  if (!hour || *hour > 23 || !Skip(text, ':')) return std::nullopt;
  const auto minute = Digits(text, 2);
  if (!minute || *minute > 59 || !Skip(text, ':')) return std::nullopt;
  const auto second = Digits(text, 2);
  if (!second || *second > 60) return std::nullopt;
  int64_t micros = 0;
  if (Skip(text, '.')) {
    int64_t unit = 100'000;
    if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
    for (; !text.empty() && text[0] >= '0' && text[0] <= '9'; text.remove_prefix(1), unit /= 10)
      micros += unit * (text[0] - '0');
  }
  std::chrono::minutes offset{0};
  if (!Skip(text, 'Z') && !Skip(text, 'z')) {
    const bool behind = text.starts_with('-');
    if (!Skip(text, '-') && !Skip(text, '+')) return std::nullopt;
    const auto hours = Digits(text, 2);
    if (!hours || *hours > 23 || !Skip(text, ':')) return std::nullopt;
    const auto minutes = Digits(text, 2);
    if (!minutes || *minutes > 59) return std::nullopt;
    offset = std::chrono::minutes((*hours * 60 + *minutes) * (behind ? -1 : 1));
  }
  const std::chrono::year_month_day date{std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok() || !text.empty()) return std::nullopt;
  return WallTime(std::chrono::sys_days(date)) + std::chrono::hours(*hour) + std::chrono::minutes(*minute) +
         seconds(*second) + microseconds(micros) - offset;
}

}  // namespace lockstep
