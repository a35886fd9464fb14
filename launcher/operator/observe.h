#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launcher/operator/job_status.h"

// What the operator keeps of the API's objects: the fields that the planner decides by, and no others. All
// functions are pure and take whatever is there.
namespace lockstep::op {

struct ObservedJob {
  std::string space;
  std::string name;
  std::string uid;
  std::string resource_version;
  int64_t generation = 0;
  Time created{};
  bool deleting = false;
  std::string queue;           // Kueue's; empty: none
  std::string priority_class;  // Kueue's
  std::string spec;            // JSON, as it is
  JobStatus status;
};

// A batch/v1 Job that a TrainingJob owns.
struct ChildJob {
  std::string name;
  std::string uid;
  std::string role;
  int attempt = 0;
  int restarts_before = 0;  // kRestartsAnnotation
  std::string pods;         // kPodsAnnotation
  bool deleting = false;
  bool suspended = false;
  Time created{};
  std::optional<Time> started;  // since it was last not suspended
  int active = 0;
  int ready = 0;
  int succeeded = 0;
  int failed = 0;
  bool complete = false;
  bool failing = false;  // FailureTarget or Failed: it will not be anything else
  Time failed_at{};
  std::string failure_reason;
  std::string failure_message;

  bool over() const { return complete || failing; }
  bool operator==(const ChildJob&) const = default;
};

enum class PodPhase { kPending, kRunning, kSucceeded, kFailed };

struct ChildPod {
  std::string name;
  std::string uid;
  std::string job_uid;  // of the batch/v1 Job
  std::string role;
  int attempt = 0;
  int index = 0;  // within the role
  PodPhase phase = PodPhase::kPending;
  bool scheduled = false;
  std::string unschedulable;      // why not, in the scheduler's words
  std::optional<Time> delete_by;  // it is being deleted, and should be gone by then
  bool disrupted = false;         // drained, preempted, evicted: not the job's fault
  std::string address;            // IP; empty: none yet
  std::string waiting;            // why the container does not start ("ImagePullBackOff"); empty: it does
  std::string waiting_message;
  std::optional<Time> ended_at;  // of the container
  // Of the container, or of an init container that failed before it could start.
  std::optional<int> exit_code;
  std::string exit_reason;   // "OOMKilled", "Error"
  std::string exit_message;  // what the agent left behind, see ReadVerdict

  bool ended() const { return phase == PodPhase::kSucceeded || phase == PodPhase::kFailed; }
  bool operator==(const ChildPod&) const = default;
};

struct ChildService {
  std::string name;
  std::string uid;

  bool operator==(const ChildService&) const = default;
};

// What replica 0's agent says of itself (/status).
struct AgentReport {
  std::string pod_uid;  // of the pod that was asked
  int restarts = 0;     // in place, in this attempt
  bool restarting = false;
  std::optional<JobProgress> progress;
  std::optional<LastFailure> last_failure;
};

// How an agent ended, as it leaves it in its pod's termination message.
struct Verdict {
  int exit_code = 0;
  std::string reason;
  std::string message;
  int replica = 0;
  std::optional<int> process;
};

// Why what the job needs cannot be made now; it may be later.
struct Blocked {
  std::string reason;   // "NameTaken": by somebody else's object; "GangUnavailable", "Forbidden"
  std::string message;  // for people
};

struct Observed {
  ObservedJob job;
  std::vector<ChildJob> jobs;  // all that the job's uid owns, of any attempt
  std::vector<ChildService> services;
  std::vector<ChildPod> pods;
  std::optional<AgentReport> report;
  std::optional<Blocked> blocked;
  // The API server refuses what we would make, and always will; for people. Empty: it does not.
  std::string refused;
  std::optional<Time> last_progress_write;  // by this operator
};

ObservedJob ReadTrainingJob(const nlohmann::json& object);
ChildJob ReadChildJob(const nlohmann::json& object);
ChildPod ReadChildPod(const nlohmann::json& object);
// `text` is the body of /status; empty when it is none.
std::optional<AgentReport> ReadAgentReport(const std::string& text);
std::optional<Verdict> ReadVerdict(const std::string& termination_message);
std::string VerdictText(const Verdict& verdict);

// The uid of the controller that owns the object; empty: none. `kind`: "TrainingJob".
std::string OwnerUid(const nlohmann::json& object, std::string_view kind);

}  // namespace lockstep::op
