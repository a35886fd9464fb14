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

std::optional<CheckpointId> TakeId(std::string_view* text) {
  const std::optional<int64_t> step = TakeNumber("step-", text);
  if (!step) return std::nullopt;
  const std::optional<int64_t> term = TakeNumber("-term-", text);
  if (!term) return std::nullopt;
  return CheckpointId{.term = *term, .step = *step};
}

}  // namespace

std::string CheckpointName(CheckpointId id) {
  char name[80];
  std::snprintf(name, sizeof name, "step-%09lld-term-%06lld.ckpt", static_cast<long long>(id.step),
                static_cast<long long>(id.term));
  return name;
}

std::string PartName(CheckpointId id, PartNumber part) {
  char name[80];
  std::snprintf(name, sizeof name, ".part-%05lld-of-%05lld", static_cast<long long>(part.number),
                static_cast<long long>(part.count));
  return CheckpointName(id) + name;
}

std::string TemporaryName(const std::string& name) { return name + std::string(kTemporary); }

std::string ClaimName(int64_t term) {
  char name[40];
  std::snprintf(name, sizeof name, "term-%06lld", static_cast<long long>(term));
  return name;
}

std::optional<CheckpointId> ParseCheckpointName(std::string_view name) {
  std::string_view rest = name;
  const std::optional<CheckpointId> id = TakeId(&rest);
  return id && name == CheckpointName(*id) ? id : std::nullopt;
}

std::optional<CheckpointId> ParsePartName(std::string_view name) {
  std::string_view rest = name;
  const std::optional<CheckpointId> id = TakeId(&rest);
  const std::optional<int64_t> number = id ? TakeNumber(".ckpt.part-", &rest) : std::nullopt;
  const std::optional<int64_t> count = number ? TakeNumber("-of-", &rest) : std::nullopt;
  return count && name == PartName(*id, {*number, *count}) ? id : std::nullopt;
}

std::optional<CheckpointId> ParseTemporaryName(std::string_view name) {
  if (!name.ends_with(kTemporary)) return std::nullopt;
  const std::string_view whole = name.substr(0, name.size() - kTemporary.size());
  const std::optional<CheckpointId> id = ParseCheckpointName(whole);
  return id ? id : ParsePartName(whole);
}

std::optional<int64_t> ParseClaimName(std::string_view name) {
  std::string_view rest = name;
  const std::optional<int64_t> term = TakeNumber("term-", &rest);
  return term && name == ClaimName(*term) ? term : std::nullopt;
}

}  // namespace lockstep::trainer::checkpoint
