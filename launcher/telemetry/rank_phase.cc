#include "launcher/telemetry/rank_phase.h"

#include <array>

namespace lockstep::telemetry {

namespace {

// In the order of RankPhase.
constexpr std::array<std::string_view, 5> kNames = {"Starting", "Initializing", "Training", "Evaluating",
                                                    "Checkpointing"};

}  // namespace

std::string_view RankPhaseName(RankPhase phase) { return kNames[static_cast<size_t>(phase)]; }

std::optional<RankPhase> ParseRankPhase(std::string_view name) {
  for (size_t i = 1; i < kNames.size(); ++i) {  // nobody says "Starting"
    if (kNames[i] == name) return static_cast<RankPhase>(i);
  }
  return std::nullopt;
}

}  // namespace lockstep::telemetry
