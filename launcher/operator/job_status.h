#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

// A TrainingJob's status as plain values. Times are in whole seconds, as the API keeps them.
namespace lockstep::op {

using Time = std::chrono::sys_seconds;

enum class Phase { kPending, kScheduled, kRunning, kRestarting, kSuspended, kSucceeded, kFailed };
std::string_view PhaseName(Phase phase);

// Condition types.
inline constexpr char kSuspended[] = "Suspended";
inline constexpr char kScheduled[] = "Scheduled";
inline constexpr char kRunning[] = "Running";
inline constexpr char kRestarting[] = "Restarting";
inline constexpr char kComplete[] = "Complete";
inline constexpr char kFailed[] = "Failed";

struct Condition {
  std::string type;
  bool status = false;
  std::string reason;  // CamelCase
  std::string message;
  int64_t observed_generation = 0;
  Time last_transition{};
  bool operator==(const Condition&) const = default;
};

struct ReplicaCounts {
  int desired = 0;
  int active = 0;
  int ready = 0;
  int succeeded = 0;
  int failed = 0;
  bool operator==(const ReplicaCounts&) const = default;
};

struct JobProgress {
  int64_t step = 0;
  std::optional<int64_t> total_steps;
  std::optional<int> percentage;
  std::optional<int64_t> remaining_seconds;
  std::string samples_per_second;  // decimal; empty: not known
  std::string loss;
  Time last_updated{};
  bool operator==(const JobProgress&) const = default;
};

struct LastFailure {
  int replica = 0;
  std::string role = {};  // empty: the job has but one
  std::optional<int> process;
  std::optional<int> exit_code;
  std::string reason;
  std::string message;
  bool operator==(const LastFailure&) const = default;
};

struct JobStatus {
  std::optional<Phase> phase;  // empty: the operator has not seen the job yet
  int64_t observed_generation = 0;
  std::vector<Condition> conditions;  // in the order in which they first came
  ReplicaCounts replicas;
  int attempt = 0;
  int restarts = 0;
  std::optional<Time> start_time;
  std::optional<Time> completion_time;
  std::optional<JobProgress> progress;
  std::optional<LastFailure> last_failure;
  bool operator==(const JobStatus&) const = default;

  // Null when there is none of that type.
  const Condition* Find(std::string_view type) const;
  bool Is(std::string_view type) const;  // there, and true
  // Complete or Failed: for good.
  bool finished() const { return Is(kComplete) || Is(kFailed); }
  // Adds or changes one. The time of the transition moves only when `status` does.
  void Set(std::string_view type, bool status, std::string reason, std::string message, Time now);
};

// What is not as the operator writes it is taken as not there: a status is rebuilt, not trusted.
JobStatus ReadStatus(const nlohmann::json& status);
nlohmann::json StatusJson(const JobStatus& status);
// The same as a merge patch: what is not there is taken away.
nlohmann::json StatusPatch(const JobStatus& status);

// "2026-01-31T12:00:00Z" and back; another RFC 3339 time too.
std::string TimeText(Time time);
std::optional<Time> ReadTime(const nlohmann::json& object, std::string_view key);

}  // namespace lockstep::op
