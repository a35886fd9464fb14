#include "launcher/telemetry/rank_phase.h"

#include <array>

namespace lockstep::telemetry {

namespace {

// In the order of RankPhase.
constexpr std::array<std::string_view, 6> kNames = {"Starting",   "Initializing",  "Training",
                                                    "Evaluating", "Checkpointing", "Regrouping"};

}  // namespace

std::string_view RankPhaseName(RankPhase phase) { return kNames[static_cast<size_t>(phase)]; }

std::optional<RankPhase> ParseRankPhase(std::string_view name) {
  for (const RankPhase phase :
       {RankPhase::kInitializing, RankPhase::kTraining, RankPhase::kEvaluating, RankPhase::kCheckpointing}) {
    if (RankPhaseName(phase) == name) return phase;
  }
  return std::nullopt;
}

}  // namespace lockstep::telemetry
