#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// The names of all that is in a folder of checkpoints.
//   step-000000120-term-000002.ckpt       a checkpoint
//   step-000000120-term-000002.ckpt.tmp   one being written
//   term-000002                           the claim of a term: "RUN\nGENERATION\n"
namespace lockstep::trainer::checkpoint {

// Ordered by age.
struct CheckpointId {
  int64_t term = 0;
  int64_t step = 0;

  // clang-tidy 14 takes the 0 within a defaulted <=> for a pointer.
  friend auto operator<=>(const CheckpointId&,
                          const CheckpointId&) = default;  // NOLINT(modernize-use-nullptr)
};

std::string CheckpointName(CheckpointId id);
std::string TemporaryName(CheckpointId id);
std::string ClaimName(int64_t term);

// None for what is not exactly such a name.
std::optional<CheckpointId> ParseCheckpointName(std::string_view name);
std::optional<CheckpointId> ParseTemporaryName(std::string_view name);
std::optional<int64_t> ParseClaimName(std::string_view name);

}  // namespace lockstep::trainer::checkpoint
