#include "launcher/job/translate.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "common/contract/exit_codes.h"
#include "launcher/spec/enums.h"
#include "launcher/spec/roles.h"

namespace lockstep::job {

process::RestartRules RestartRulesOf(const spec::RunPolicy& policy) {
  const auto action = [](spec::ExitAction from) {
    switch (from) {
      case spec::ExitAction::kFail:
        return process::RuleAction::kFail;
      case spec::ExitAction::kIgnore:
        return process::RuleAction::kIgnore;
      case spec::ExitAction::kRestart:
        break;
    }
    return process::RuleAction::kRestart;
  };
  process::RestartRules rules{.exit_codes = {}, .max_restarts = policy.max_restarts};
  for (const spec::ExitCodeRule& rule : policy.exit_codes) {
    rules.exit_codes.push_back({.codes = rule.codes, .reason = rule.reason, .action = action(rule.action)});
  }
  return rules;
}

telemetry::JobLabels LabelsOf(const spec::TrainingJob& job) {
  return {.name = job.name,
          .namespace_name = job.namespace_name,
          .strategy = std::string(spec::Name(job.strategy.type)),
          .framework = job.trainer ? "Lockstep"
                                   : std::string(spec::Name(spec::ProgramOf(job, WorkerOf(job))->framework))};
}

telemetry::JobDescription DescriptionOf(const spec::TrainingJob& job, int world_size) {
  const telemetry::JobLabels labels = LabelsOf(job);
  return {.name = labels.name,
          .namespace_name = labels.namespace_name,
          .strategy = labels.strategy,
          .framework = labels.framework,
          .world_size = world_size,
          .replicas = spec::ReplicasOf(job),
          .reports_steps = job.trainer.has_value()};
}

std::string InSeconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

const spec::Role& WorkerOf(const spec::TrainingJob& job) {
  return *std::find_if(job.roles.begin(), job.roles.end(),
                       [](const spec::Role& role) { return role.name == "worker"; });
}

bool IsElastic(const spec::TrainingJob& job) {
  return job.run_policy.min_replicas && *job.run_policy.min_replicas < WorkerOf(job).replicas;
}

bool DividesBatch(const spec::TrainingJob& job) {
  return job.trainer && job.strategy.type != spec::StrategyType::kParameterServer &&
         job.strategy.type != spec::StrategyType::kPipeline;
}

process::Launch LaunchOf(const spec::TrainingJob& job, const placement::ProcessPlan& plan) {
  return {.rank = plan.rank,
          .local_rank = plan.local_rank,
          .role = plan.role,
          .role_rank = job.roles.size() > 1 ? plan.role_rank : -1,
          .own_trainer = plan.own_trainer,
          .restarts_alone = spec::RestartsAlone(job),
          .command = plan.command,
          .environment = plan.environment,
          .working_directory = plan.working_directory,
          .cpus = plan.devices.cpus};
}

std::map<int, spec::LogPattern> LogPatternsOf(const spec::TrainingJob& job,
                                              const std::vector<process::Launch>& launches) {
  std::map<int, spec::LogPattern> patterns;
  for (const process::Launch& launch : launches) {
    if (launch.own_trainer) continue;
    const auto role = std::find_if(job.roles.begin(), job.roles.end(),
                                   [&](const spec::Role& each) { return each.name == launch.role; });
    const spec::Program* const program = role == job.roles.end() ? nullptr : spec::ProgramOf(job, *role);
    if (program == nullptr || !program->progress_log_pattern) continue;
    auto pattern = spec::LogPattern::Compile(*program->progress_log_pattern);
    if (pattern.ok()) patterns.emplace(launch.rank, std::move(*pattern));  // Validate() has seen to it
  }
  return patterns;
}

telemetry::RankDevice RankDeviceOf(const placement::ProcessDevices& devices) {
  telemetry::RankDevice device{.type = std::string(spec::Name(devices.type)), .devices = devices.devices};
  if (devices.type != spec::DeviceType::kGpu) return device;
  device.shared = devices.shared;
  device.memory_policy = std::string(spec::Name(devices.memory.policy));
  device.memory_limit = devices.memory.limit;
  device.memory_fraction = devices.memory.fraction;
  device.held_by_mps = devices.memory.mps;
  return device;
}

rendezvous::FailureReport FailureOf(const process::ExitReport& report, const std::string& hang,
                                    bool device_failed) {
  std::string reason(process::ReasonName(report.reason));
  if (!hang.empty()) reason = kHangReason;
  if (device_failed) reason = kDeviceFailedReason;
  const std::string device = report.device_trouble.empty() ? "" : "; " + report.device_trouble;
  // The same wherever it happened: what goes to another launcher is cut.
  std::vector<std::string> last_lines = report.last_lines;
  for (std::string& line : last_lines) line.resize(std::min(line.size(), rendezvous::kMaxLastLineBytes));
  return {.process = report.local_rank,
          .rank = report.rank,
          .role = report.role,
          .role_rank = report.role_rank,
          .own_trainer = report.own_trainer,
          .exit_code = report.exit_code,
          .signal = report.signal,
          .reason = reason,
          .message = process::RankInWords(report) + ": " +
                     (hang.empty() ? process::ExitInWords(report) : hang) + device,
          .last_lines = std::move(last_lines)};
}

process::ExitReport ExitOf(const rendezvous::FailureReport& failure) {
  process::ExitReport report;
  report.rank = failure.rank;
  report.local_rank = failure.process;
  report.role = failure.role;
  report.role_rank = failure.role_rank;
  report.own_trainer = failure.own_trainer;
  report.exit_code = failure.exit_code;
  report.signal =
      failure.exit_code > contract::kExitSignalBase ? failure.exit_code - contract::kExitSignalBase : 0;
  report.reason = process::ExitReason::kError;
  using process::ExitReason;
  for (const ExitReason reason :
       {ExitReason::kSignal, ExitReason::kOutOfMemory, ExitReason::kCannotExecute, ExitReason::kNotStarted}) {
    if (failure.reason == process::ReasonName(reason)) report.reason = reason;
  }
  if (failure.reason == kHangReason) report.reason = ExitReason::kSignal;
  if (failure.reason == kDeviceFailedReason && report.signal != 0) report.reason = ExitReason::kSignal;
  report.message = failure.message;
  report.last_lines = failure.last_lines;
  return report;
}

telemetry::Failure TelemetryFailureOf(const rendezvous::FailureReport& failure) {
  return {.rank = failure.rank,
          .role = failure.role_rank < 0 ? "" : failure.role,
          .role_rank = failure.role_rank,
          .replica = failure.replica,
          .process = failure.process,
          .exit_code = failure.exit_code,
          .reason = failure.reason,
          .message = failure.message,
          .last_lines = failure.last_lines,
          .time = std::chrono::system_clock::now()};
}

telemetry::RestartReason RestartReasonOf(const std::string& reason) {
  using telemetry::RestartReason;
  if (reason == kHangReason) return RestartReason::kHang;
  if (reason == kDeviceFailedReason) return RestartReason::kDeviceFailed;
  if (reason == kReplicaLostReason) return RestartReason::kReplicaLost;
  if (reason == process::ReasonName(process::ExitReason::kOutOfMemory)) return RestartReason::kOutOfMemory;
  if (reason == process::ReasonName(process::ExitReason::kSignal)) return RestartReason::kSignal;
  if (reason == process::ReasonName(process::ExitReason::kError)) return RestartReason::kExitCode;
  return RestartReason::kOther;
}

}  // namespace lockstep::job
