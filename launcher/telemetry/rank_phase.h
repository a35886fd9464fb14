#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::telemetry {

// What a process says it is doing. kStarting: nothing said yet (a program may never say anything).
enum class RankPhase { kStarting, kInitializing, kTraining, kEvaluating, kCheckpointing };

std::string_view RankPhaseName(RankPhase phase);  // "Starting", "Initializing" …
// Empty for a word that is not a phase.
std::optional<RankPhase> ParseRankPhase(std::string_view name);

// Who a process is: its rank in the job, and its labels.
struct RankIdentity {
  int rank = 0;
  std::string role = "worker";
  int replica = 0;
  int process = 0;  // index within the replica
};

}  // namespace lockstep::telemetry
