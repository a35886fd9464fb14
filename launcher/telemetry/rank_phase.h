#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::telemetry {

// What a process says it is doing. kStarting: nothing said yet (a program may never say anything).
// kRegrouping: said by the event of that name; it waits for the next generation.
enum class RankPhase { kStarting, kInitializing, kTraining, kEvaluating, kCheckpointing, kRegrouping };

std::string_view RankPhaseName(RankPhase phase);  // "Starting", "Initializing" …
// Empty for a word that is not a phase, or none that the event "phase" has.
std::optional<RankPhase> ParseRankPhase(std::string_view name);

// What a process computes on, and how much of that device's memory it may take.
struct RankDevice {
  std::string type = {};                  // "GPU" | "CPU"; empty: not known
  std::vector<std::string> devices = {};  // UUIDs, "GPU:0" where there is none, "CPU:1"
  bool shared = false;                    // others of this job are on the same GPU
  std::string memory_policy = {};         // "Growth" …; empty on the CPU
  std::optional<int64_t> memory_limit;    // bytes on each device
  std::optional<double> memory_fraction;  // of each device
  bool held_by_mps = false;
};

// Who a process is: its rank in the job, its labels, and where it is.
struct RankIdentity {
  int rank = 0;
  std::string role = "worker";
  int replica = 0;
  int process = 0;  // index within the replica
  RankDevice device = {};
  int role_rank = 0;  // among the processes of its role
  bool steps = true;  // takes the job's steps; false: serves or evaluates those that do
};

}  // namespace lockstep::telemetry
