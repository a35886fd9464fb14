#pragma once

#include <chrono>
#include <optional>

#include "launcher/import/translation.h"

namespace lockstep::importer {

// What the Jobs of a JobSet say of all, collected over its replicatedJobs.
struct JobLimits {
  std::optional<int> backoff_limit;                     // the largest
  std::optional<std::chrono::seconds> active_deadline;  // the shortest
  std::vector<spec::ExitCodeRule> exit_codes;
};

// A replicatedJob, of a JobSet or of a TrainingRuntime; its command is as the pod has it. Empty where it has
// no pods, which is told.
std::optional<Draft> ReadReplicatedJob(const Field& group, JobLimits& limits);

}  // namespace lockstep::importer
