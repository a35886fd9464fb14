#include "trainer/checkpoint/directory_names.h"

#include <charconv>
#include <cstdio>

namespace lockstep::trainer::checkpoint {
namespace {

constexpr std::string_view kTemporary = ".tmp";
constexpr int64_t kMost = 1'000'000'000'000'000;  // far from overflow

// Takes `literal`, then a number, from the front of `text`.
std::optional<int64_t> TakeNumber(std::string_view literal, std::string_view* text) {
  if (!text->starts_with(literal)) return std::nullopt;
  text->remove_prefix(literal.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || number < 0 || number > kMost) return std::nullopt;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return number;
}

}  // namespace

std::string CheckpointName(CheckpointId id) {
  char name[80];
  std::snprintf(name, sizeof name, "step-%09lld-term-%06lld.ckpt", static_cast<long long>(id.step),
                static_cast<long long>(id.term));
  return name;
}

std::string TemporaryName(CheckpointId id) { return CheckpointName(id) + std::string(kTemporary); }

std::string ClaimName(int64_t term) {
  char name[40];
  std::snprintf(name, sizeof name, "term-%06lld", static_cast<long long>(term));
  return name;
}

std::optional<CheckpointId> ParseCheckpointName(std::string_view name) {
  std::string_view rest = name;
  const std::optional<int64_t> step = TakeNumber("step-", &rest);
  if (!step) return std::nullopt;
  const std::optional<int64_t> term = TakeNumber("-term-", &rest);
  if (!term) return std::nullopt;
  const CheckpointId id{.term = *term, .step = *step};
  return name == CheckpointName(id) ? std::optional(id) : std::nullopt;
}

std::optional<CheckpointId> ParseTemporaryName(std::string_view name) {
  if (!name.ends_with(kTemporary)) return std::nullopt;
  return ParseCheckpointName(name.substr(0, name.size() - kTemporary.size()));
}

std::optional<int64_t> ParseClaimName(std::string_view name) {
  std::string_view rest = name;
  const std::optional<int64_t> term = TakeNumber("term-", &rest);
  return term && name == ClaimName(*term) ? term : std::nullopt;
}

}  // namespace lockstep::trainer::checkpoint
