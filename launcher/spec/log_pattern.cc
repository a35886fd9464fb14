#include "launcher/spec/log_pattern.h"

#include <re2/re2.h>

#include <array>
#include <charconv>
#include <map>
#include <utility>
#include <vector>

#include "launcher/spec/quote.h"

namespace lockstep::spec {

namespace {

constexpr int64_t kMost = int64_t{1} << 53;  // what is more is no count
constexpr int64_t kMemory = int64_t{1}
                            << 20;  // of the compiled expression and what it keeps while it matches

// (?<name> as RE2 of Debian 12 wants it: (?P<name>.
std::string WithPythonsNames(std::string_view text) {
  std::string result;
  bool in_class = false;
  for (size_t i = 0; i < text.size(); ++i) {
    result += text[i];
    if (text[i] == '\\' && i + 1 < text.size()) {
      result += text[++i];
    } else if (in_class) {
      in_class = text[i] != ']';
    } else if (text[i] == '[') {
      in_class = true;
    } else if (text.substr(i).starts_with("(?<")) {
      result += "?P<";
      i += 2;
    }
  }
  return result;
}

template <class Number>
std::optional<Number> NumberIn(const std::vector<re2::StringPiece>& groups, int index) {
  if (index < 0) return std::nullopt;
  const re2::StringPiece& text = groups[static_cast<size_t>(index)];
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || at != end) return std::nullopt;
  return number;
}

}  // namespace

Result<LogPattern> LogPattern::Compile(const std::string& text) {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kMemory);
  // Bytes, since output may hold any.
  options.set_encoding(RE2::Options::EncodingLatin1);
  auto expression = std::make_shared<const RE2>(WithPythonsNames(text), options);
  if (!expression->ok()) return InvalidArgument("is no regular expression of RE2's: " + expression->error());
  LogPattern pattern;
  const std::array<std::pair<std::string_view, int*>, 5> known = {{{"step", &pattern.step_},
                                                                   {"total", &pattern.total_},
                                                                   {"epoch", &pattern.epoch_},
                                                                   {"samples", &pattern.samples_},
                                                                   {"loss", &pattern.loss_}}};
  for (const auto& [name, index] : expression->NamedCapturingGroups()) {
    bool found = false;
    for (const auto& [wanted, place] : known) {
      if (name != wanted) continue;
      *place = index;
      found = true;
    }
    if (!found) {
      return InvalidArgument("has a group named " + Quoted(name) +
                             "; step, total, epoch, samples and loss are read");
    }
  }
  if (pattern.step_ < 0) {
    return InvalidArgument("has no group named step; write (?<step>\\d+) where the step's number stands");
  }
  pattern.expression_ = std::move(expression);
  return pattern;
}

std::optional<LogStep> LogPattern::Match(std::string_view line) const {
  std::vector<re2::StringPiece> groups(static_cast<size_t>(expression_->NumberOfCapturingGroups()) + 1);
  if (!expression_->Match(re2::StringPiece(line.data(), line.size()), 0, line.size(), RE2::UNANCHORED,
                          groups.data(), static_cast<int>(groups.size()))) {
    return std::nullopt;
  }
  const auto count = [&](int index) {
    const auto number = NumberIn<int64_t>(groups, index);
    return number && *number >= 0 && *number <= kMost ? number : std::nullopt;
  };
  const auto step = count(step_);
  if (!step) return std::nullopt;
  return LogStep{.step = *step,
                 .total = count(total_),
                 .epoch = count(epoch_),
                 .samples = count(samples_),
                 .loss = NumberIn<double>(groups, loss_).value_or(std::numeric_limits<double>::quiet_NaN())};
}

}  // namespace lockstep::spec
