#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// The names of all that is in a folder of checkpoints.
//   step-000000120-term-000002.ckpt       a checkpoint, or what says that all of its parts are there
//   step-000000120-term-000002.ckpt.part-00003-of-00008
//   ….tmp                                 one of these, being written
//   term-000002                           the claim of a term: "RUN\nGENERATION\n", and the runs before it, a
//   line each
namespace lockstep::trainer::checkpoint {

// Ordered by age.
struct CheckpointId {
  int64_t term = 0;
  int64_t step = 0;

  // clang-tidy 14 takes the 0 within a defaulted <=> for a pointer.
  friend auto operator<=>(const CheckpointId&,
                          const CheckpointId&) = default;  // NOLINT(modernize-use-nullptr)
};

// Of `count`, numbered from 0.
struct PartNumber {
  int64_t number = 0;
  int64_t count = 0;

  friend bool operator==(const PartNumber&, const PartNumber&) = default;
};

std::string CheckpointName(CheckpointId id);
std::string PartName(CheckpointId id, PartNumber part);
// What the file with this name is called while it is written.
std::string TemporaryName(const std::string& name);
std::string ClaimName(int64_t term);

// None for what is not exactly such a name.
std::optional<CheckpointId> ParseCheckpointName(std::string_view name);
// Whose part it is.
std::optional<CheckpointId> ParsePartName(std::string_view name);
// Of which checkpoint it, or a part of it, is being written there.
std::optional<CheckpointId> ParseTemporaryName(std::string_view name);
std::optional<int64_t> ParseClaimName(std::string_view name);

}  // namespace lockstep::trainer::checkpoint
