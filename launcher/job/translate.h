#pragma once

#include <string>
#include <vector>

#include "launcher/placement/assign.h"
#include "launcher/process/child_process.h"
#include "launcher/process/exit_report.h"
#include "launcher/process/restart_policy.h"
#include "launcher/rendezvous/membership.h"
#include "launcher/spec/log_pattern.h"
#include "launcher/spec/training_job.h"
#include "launcher/telemetry/job_metrics.h"
#include "launcher/telemetry/job_state.h"

// The words of one folder in those of another: spec, placement, process, rendezvous and telemetry don't know
// each other, job/ knows them all. Pure.
namespace lockstep::job {

process::RestartRules RestartRulesOf(const spec::RunPolicy& policy);

telemetry::JobDescription DescriptionOf(const spec::TrainingJob& job, int world_size);
telemetry::JobLabels LabelsOf(const spec::TrainingJob& job);

// Of those whose program has one, by rank.
std::map<int, spec::LogPattern> LogPatternsOf(const spec::TrainingJob& job,
                                              const std::vector<process::Launch>& launches);

process::Launch LaunchOf(const spec::TrainingJob& job, const placement::ProcessPlan& plan);
telemetry::RankDevice RankDeviceOf(const placement::ProcessDevices& devices);

// A rank's end as it is told to replica 0, and there again as the restart policy wants it. `hang` is why the
// launcher itself killed it, or empty; `device_failed`: its GPU can no longer be used.
rendezvous::FailureReport FailureOf(const process::ExitReport& report, const std::string& hang,
                                    bool device_failed = false);
process::ExitReport ExitOf(const rendezvous::FailureReport& failure);

telemetry::Failure TelemetryFailureOf(const rendezvous::FailureReport& failure);
telemetry::RestartReason RestartReasonOf(const std::string& reason);

// The reason of a failure for which the launcher killed a rank that no longer moved.
inline constexpr char kHangReason[] = "Hang";
inline constexpr char kReplicaLostReason[] = "ReplicaLost";
inline constexpr char kDeviceFailedReason[] = "DeviceFailed";

std::string InSeconds(double seconds);  // "2.4 s"

// The role that the others serve; every job has it (spec/rules_roles.cc).
const spec::Role& WorkerOf(const spec::TrainingJob& job);

// Whether the job goes on with fewer replicas than it asks for.
bool IsElastic(const spec::TrainingJob& job);

// Whether the trainer's batch is cut over all processes, so that it has to come out even.
bool DividesBatch(const spec::TrainingJob& job);

}  // namespace lockstep::job
