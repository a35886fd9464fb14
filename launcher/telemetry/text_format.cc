#include "launcher/telemetry/text_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace lockstep::telemetry {

namespace {

std::string Two(int64_t value) {
  std::string text;
  if (value < 10) text += '0';
  return text += std::to_string(value);
}

}  // namespace

std::string Grouped(int64_t value) {
  const std::string digits = std::to_string(value);
  const size_t sign = value < 0 ? 1 : 0;
  std::string result;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) result += ',';
    result += digits[i];
  }
  return result;
}

std::string FormatDuration(double seconds) {
  if (!(seconds < 1e12)) return "very long";
  const int64_t s = std::max<int64_t>(0, static_cast<int64_t>(std::ceil(seconds)));
  if (s < 60) return std::to_string(s) + " s";
  if (s < 3600) return std::to_string(s / 60) + " min " + Two(s % 60) + " s";
  if (s < 86'400) return std::to_string(s / 3600) + " h " + Two(s / 60 % 60) + " min";
  return std::to_string(s / 86'400) + " d " + Two(s / 3600 % 24) + " h";
}

std::string FormatBytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return FormatDecimals(value, unit == 0 ? 0 : 1) + " " + kUnits[unit];
}

std::string FormatDecimals(double value, int decimals) {
  std::array<char, 400> text;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

std::string FormatLoss(double loss) {
  const double size = std::abs(loss);
  if (size == 0 || (size >= 1e-3 && size < 1e6)) return FormatDecimals(loss, 4);
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.2e", loss);
  return text.data();
}

std::vector<std::string> FormatTable(const std::vector<std::string>& heading,
                                     const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(heading.size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (size_t i = 0; i < heading.size(); ++i) {
    if (widths[i] > 0) widths[i] = std::max(widths[i], heading[i].size());
  }
  std::vector<std::string> lines;
  const auto add = [&](const std::vector<std::string>& row) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (widths[i] > 0) line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  };
  add(heading);
  for (const auto& row : rows) add(row);
  return lines;
}

std::string Printable(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (c == 0xc2 && next >= 0x80 && next < 0xa0) {  // C1 controls in UTF-8
      result += '?';
      ++i;
    } else {
      result += c < 0x20 || c == 0x7f ? '?' : text[i];
    }
  }
  return result;
}

}  // namespace lockstep::telemetry
