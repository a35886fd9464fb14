#include "launcher/spec/scalar.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

namespace lockstep::spec {

namespace {

using Wide = unsigned __int128;
constexpr Wide kInt64Limit = Wide{1} << 63;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool AllDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsDigit);
}

template <size_t N>
bool OneOf(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

constexpr std::array<std::string_view, 5> kNulls = {"", "~", "null", "Null", "NULL"};
constexpr std::array<std::string_view, 3> kTrue = {"true", "True", "TRUE"};
constexpr std::array<std::string_view, 3> kFalse = {"false", "False", "FALSE"};
constexpr std::array<std::string_view, 8> kOldTrue = {"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"};
constexpr std::array<std::string_view, 8> kOldFalse = {"n", "N", "no", "No", "NO", "off", "Off", "OFF"};

Ambiguous OldBoolean(std::string_view text, std::string_view value) {
  return {std::string(value) + " to kubectl and a string in YAML 1.2; write " + std::string(value) +
          ", or \"" + std::string(text) + "\" for the string"};
}

ScalarValue Integer(std::string_view text, std::string_view digits, int base) {
  const bool negative = text.front() == '-';
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || value > static_cast<uint64_t>(INT64_MAX) + (negative ? 1 : 0))
    return OutOfRange{};
  return static_cast<int64_t>(negative ? ~value + 1 : value);
}

// [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?   (YAML 1.2.2, 10.3.2)
bool IsFloat(std::string_view text) {
  size_t i = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  const auto digits = [&] {
    const size_t begin = i;
    while (i < text.size() && IsDigit(text[i])) ++i;
    return i - begin;
  };
  const size_t whole = digits();
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (digits() == 0 && whole == 0) return false;
  } else if (whole == 0) {
    return false;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    if (digits() == 0) return false;
  }
  return i == text.size();
}

ScalarValue Float(std::string_view text) {
  if (text.front() == '+') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return OutOfRange{};
  return value;
}

// Of a scalar that begins like a number but is none in the core schema: whether go-yaml makes one of it.
bool IsOldNumber(std::string_view text) {
  std::string plain(text);
  std::erase(plain, '_');
  std::string_view rest = plain;
  if (!rest.empty() && (rest[0] == '-' || rest[0] == '+')) rest.remove_prefix(1);
  const auto all = [](std::string_view digits, auto is) {
    return !digits.empty() && std::all_of(digits.begin(), digits.end(), is);
  };
  if (rest.size() > 2 && rest[0] == '0') {
    const std::string_view digits = rest.substr(2);
    switch (rest[1]) {
      case 'x':
      case 'X':
        return all(digits,
                   [](char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); });
      case 'o':
      case 'O':
        return all(digits, [](char c) { return c >= '0' && c <= '7'; });
      case 'b':
      case 'B':
        return all(digits, [](char c) { return c == '0' || c == '1'; });
      default:
        break;
    }
  }
  return plain.size() != text.size() && IsFloat(plain);
}

}  // namespace

ScalarValue ResolvePlain(std::string_view text) {
  if (OneOf(text, kNulls)) return Null{};
  if (OneOf(text, kTrue)) return true;
  if (OneOf(text, kFalse)) return false;
  if (OneOf(text, kOldTrue)) return OldBoolean(text, "true");
  if (OneOf(text, kOldFalse)) return OldBoolean(text, "false");

  const char first = text[0];
  if (!IsDigit(first) && first != '-' && first != '+' && first != '.') return text;
  const std::string_view unsigned_text = first == '-' || first == '+' ? text.substr(1) : text;
  if (unsigned_text == ".inf" || unsigned_text == ".Inf" || unsigned_text == ".INF" || text == ".nan" ||
      text == ".NaN" || text == ".NAN") {
    return OutOfRange{};
  }
  if (AllDigits(unsigned_text)) {
    if (unsigned_text.size() > 1 && unsigned_text[0] == '0') {
      return Ambiguous{"octal to kubectl and decimal in YAML 1.2; leave the 0 out, or quote it for a string"};
    }
    return Integer(text, unsigned_text, 10);
  }
  if (text.starts_with("0x") && text.size() > 2) {
    const std::string_view digits = text.substr(2);
    if (std::all_of(digits.begin(), digits.end(),
                    [](char c) { return std::isxdigit(static_cast<unsigned char>(c)); })) {
      return Integer(text, digits, 16);
    }
  }
  if (text.starts_with("0o") && text.size() > 2) {
    const std::string_view digits = text.substr(2);
    if (std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '7'; })) {
      return Integer(text, digits, 8);
    }
  }
  if (IsFloat(text)) return Float(text);
  if (IsOldNumber(text)) {
    return Ambiguous{"a number to kubectl and a string in YAML 1.2; write the number in digits, or quote it"};
  }
  return text;
}

std::optional<int64_t> ParseQuantity(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  // The digits as an integer, scaled by ten to the power of -`decimals`.
  Wide digits = 0;
  int decimals = 0;
  bool any = false;
  bool point = false;
  size_t i = 0;
  for (; i < text.size() && (IsDigit(text[i]) || (text[i] == '.' && !point)); ++i) {
    if (text[i] == '.') {
      point = true;
      continue;
    }
    any = true;
    if (digits > kInt64Limit) return std::nullopt;
    digits = digits * 10 + static_cast<Wide>(text[i] - '0');
    decimals += point ? 1 : 0;
  }
  if (!any) return std::nullopt;

  const std::string_view suffix = text.substr(i);
  int exponent = 0;
  int shift = 0;
  constexpr std::string_view kBinary = "KMGTPE";
  constexpr std::array<std::pair<std::string_view, int>, 9> kDecimal = {
      {{"n", -9}, {"u", -6}, {"m", -3}, {"k", 3}, {"M", 6}, {"G", 9}, {"T", 12}, {"P", 15}, {"E", 18}}};
  if (suffix.size() == 2 && suffix[1] == 'i') {
    const size_t order = kBinary.find(suffix[0]);
    if (order == std::string_view::npos) return std::nullopt;
    shift = static_cast<int>(order + 1) * 10;
  } else if (suffix.size() > 1 && (suffix[0] == 'e' || suffix[0] == 'E')) {
    std::string_view power = suffix.substr(1);
    const bool negative = power[0] == '-';
    if (power[0] == '-' || power[0] == '+') power.remove_prefix(1);
    if (!AllDigits(power) || power.size() > 3) return std::nullopt;
    std::from_chars(power.data(), power.data() + power.size(), exponent);
    if (negative) exponent = -exponent;
  } else if (!suffix.empty()) {
    const auto* const found = std::find_if(kDecimal.begin(), kDecimal.end(),
                                           [&](const auto& unit) { return unit.first == suffix; });
    if (found == kDecimal.end()) return std::nullopt;
    exponent = found->second;
  }

  exponent -= decimals;
  bool inexact = false;
  Wide value = digits;
  if (shift > 0) {
    // Below 2^67 · 2^60, which fits.
    value <<= shift;
  }
  for (; exponent > 0 && value != 0; --exponent) {
    if (value >= kInt64Limit) return std::nullopt;
    value *= 10;
  }
  for (; exponent < 0 && value != 0; ++exponent) {
    inexact = inexact || value % 10 != 0;
    value /= 10;
  }
  if (inexact) ++value;
  if (value >= kInt64Limit) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::optional<std::chrono::seconds> ParseDuration(std::string_view text) {
  constexpr Wide kSecond = 1'000'000'000;
  constexpr std::array<std::pair<std::string_view, Wide>, 7> kUnits = {{{"ns", 1},
                                                                        {"us", 1'000},
                                                                        {"µs", 1'000},
                                                                        {"ms", 1'000'000},
                                                                        {"s", kSecond},
                                                                        {"m", 60 * kSecond},
                                                                        {"h", 3600 * kSecond}}};
  if (text.empty() || text.size() > 64) return std::nullopt;
  Wide total = 0;  // nanoseconds
  while (!text.empty()) {
    Wide whole = 0;
    Wide fraction = 0;
    Wide scale = 1;
    size_t i = 0;
    for (; i < text.size() && IsDigit(text[i]); ++i) {
      if (whole > kInt64Limit) return std::nullopt;
      whole = whole * 10 + static_cast<Wide>(text[i] - '0');
    }
    if (i == 0) return std::nullopt;
    if (i < text.size() && text[i] == '.') {
      for (++i; i < text.size() && IsDigit(text[i]); ++i) {
        if (scale > kSecond * 1000) return std::nullopt;
        fraction = fraction * 10 + static_cast<Wide>(text[i] - '0');
        scale *= 10;
      }
    }
    text.remove_prefix(i);
    const size_t unit_size = std::min(text.find_first_of("0123456789."), text.size());
    const std::string_view unit = text.substr(0, unit_size);
    const auto* const found =
        std::find_if(kUnits.begin(), kUnits.end(), [&](const auto& known) { return known.first == unit; });
    if (found == kUnits.end() || (fraction * found->second) % scale != 0) return std::nullopt;
    total += whole * found->second + fraction * found->second / scale;
    if (total >= kInt64Limit) return std::nullopt;
    text.remove_prefix(unit_size);
  }
  if (total % kSecond != 0) return std::nullopt;
  return std::chrono::seconds(static_cast<int64_t>(total / kSecond));
}

}  // namespace lockstep::spec
