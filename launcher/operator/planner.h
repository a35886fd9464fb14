#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/operator/observe.h"
#include "launcher/spec/training_job.h"

// What to do about one TrainingJob, decided from what is there: no I/O, no clock, no memory.
//
// A step that must not be forgotten (the end of the job, a new attempt) is first written into the status, in
// a plan that does nothing else; the next plan, made from that status, acts on it. So whatever is interrupted
// is decided the same way again.
namespace lockstep::op {

struct Settings {
  // Pods that are being deleted are waited for until this long after they should be gone: their node is lost.
  std::chrono::seconds terminating_timeout{60};
  // A status is written for the sake of progress alone at most this often.
  std::chrono::seconds progress_interval{10};
  // After a schedule timeout the pods are made again after this long, and up to four times as long, so that
  // jobs that stood in one another's way do not come back together.
  std::chrono::seconds schedule_backoff{10};
  // Pods of one attempt that fail before a new attempt is made: the Job controller replaces the first after
  // 10 s, the second after 20, then 40 …
  int losses_per_attempt = 2;
};

// Objects to be made, in this order: the Service before the pods that look each other up by it.
struct CreateSecret {
  bool operator==(const CreateSecret&) const = default;
};
struct CreateService {
  std::string role;
  bool operator==(const CreateService&) const = default;
};
// The group of an attempt's pods (gang.h), and the end of an earlier one.
struct CreateGang {
  int attempt = 0;
  bool operator==(const CreateGang&) const = default;
};
struct DeleteGang {
  int attempt = 0;
  bool operator==(const DeleteGang&) const = default;
};
struct CreateJob {
  std::string role;
  int attempt = 0;
  int restarts = 0;        // that the job has behind it
  bool suspended = false;  // Kueue starts it
  bool operator==(const CreateJob&) const = default;
};
// Of this very object only.
struct SuspendJob {
  std::string name;
  std::string uid;
  bool suspend = true;
  bool operator==(const SuspendJob&) const = default;
};
struct DeleteJob {
  std::string name;
  std::string uid;
  bool operator==(const DeleteJob&) const = default;
};
struct DeleteTrainingJob {
  bool operator==(const DeleteTrainingJob&) const = default;
};
using Action = std::variant<CreateSecret, CreateService, CreateGang, DeleteGang, CreateJob, SuspendJob,
                            DeleteJob, DeleteTrainingJob>;

struct PlannedEvent {
  bool warning = false;
  std::string reason;
  std::string message;
  bool operator==(const PlannedEvent&) const = default;
};

struct Plan {
  std::vector<Action> actions;
  std::optional<JobStatus> status;   // to be written, after the actions; empty: it is right as it is
  bool progress_only = false;        // the status differs in what the agents report alone, and can wait
  std::vector<PlannedEvent> events;  // to be told once the status is written
  // Look again then, whatever happens until then; empty: when something changes.
  std::optional<std::chrono::seconds> look_again;
};

// `job` is the manifest in observed.job.spec, as the reader understood it; empty: it did not, and `invalid`
// says why, or it asks for what this version has not.
struct Manifest {
  std::optional<spec::TrainingJob> job;
  std::string reason;   // "InvalidSpec", "InvalidTemplate", "Unsupported"
  std::string invalid;  // for people
  // What the pods of the job are made of: "TABLE-FINGERPRINT", the first of this version's table of fields.
  // Of two with the same first part, a different second part says that the pods would be others.
  std::string pods = {};
};

Plan MakePlan(const Observed& observed, const Manifest& manifest, const Settings& settings, Time now);

}  // namespace lockstep::op
