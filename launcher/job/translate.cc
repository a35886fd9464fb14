#include "launcher/job/translate.h"

#include <csignal>

#include "common/contract/exit_codes.h"
#include "launcher/spec/enums.h"

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
          .framework = job.trainer ? "Lockstep" : std::string(spec::Name(job.program->framework))};
}

telemetry::JobDescription DescriptionOf(const spec::TrainingJob& job, int world_size) {
  const telemetry::JobLabels labels = LabelsOf(job);
  return {.name = labels.name,
          .namespace_name = labels.namespace_name,
          .strategy = labels.strategy,
          .framework = labels.framework,
          .world_size = world_size,
          .reports_steps = job.trainer.has_value()};
}

process::Launch LaunchOf(const placement::ProcessPlan& plan, bool own_trainer) {
  return {.rank = plan.rank,
          .local_rank = plan.local_rank,
          .role = plan.role,
          .own_trainer = own_trainer,
          .command = plan.command,
          .environment = plan.environment,
          .working_directory = plan.working_directory,
          .cpus = plan.devices.cpus};
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
  return {.process = report.local_rank,
          .rank = report.rank,
          .exit_code = report.exit_code,
          .reason = reason,
          .message = "rank " + std::to_string(report.rank) + ": " +
                     (hang.empty() ? process::ExitInWords(report) : hang) + device};
}

process::ExitReport ExitOf(const rendezvous::FailureReport& failure, bool own_trainer) {
  process::ExitReport report;
  report.rank = failure.rank;
  report.local_rank = failure.process;
  report.own_trainer = own_trainer;
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
  report.detail = failure.message;
  return report;
}

telemetry::Failure TelemetryFailureOf(const rendezvous::FailureReport& failure) {
  return {.rank = failure.rank,
          .replica = failure.replica,
          .process = failure.process,
          .exit_code = failure.exit_code,
          .reason = failure.reason,
          .message = failure.message,
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
