#include "launcher/operator/job_status.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "common/wall_time.h"
#include "launcher/operator/json_fields.h"

namespace lockstep::op {

using Json = nlohmann::json;

namespace {

constexpr std::array kPhases = {Phase::kPending,   Phase::kScheduled, Phase::kRunning, Phase::kRestarting,
                                Phase::kSuspended, Phase::kSucceeded, Phase::kFailed};

Condition ReadCondition(const Json& json) {
  return {.type = Text(json, "type"),
          .status = Text(json, "status") == "True",
          .reason = Text(json, "reason"),
          .message = Text(json, "message"),
          .observed_generation = Integer(json, "observedGeneration"),
          .last_transition = ReadTime(json, "lastTransitionTime").value_or(Time())};
}

Json ConditionJson(const Condition& condition) {
  return {{"type", condition.type},
          {"status", condition.status ? "True" : "False"},
          {"reason", condition.reason},
          {"message", condition.message},
          {"observedGeneration", condition.observed_generation},
          {"lastTransitionTime", TimeText(condition.last_transition)}};
}

JobProgress ReadProgress(const Json& json) {
  JobProgress progress{.step = Integer(json, "step"),
                       .samples_per_second = Text(json, "samplesPerSecond"),
                       .loss = Text(json, "loss"),
                       .last_updated = ReadTime(json, "lastUpdatedTime").value_or(Time())};
  progress.total_steps = MaybeInteger(json, "totalSteps");
  if (const auto percentage = MaybeInteger(json, "percentage")) {
    progress.percentage = static_cast<int>(std::clamp<int64_t>(*percentage, 0, 100));
  }
  progress.remaining_seconds = MaybeInteger(json, "estimatedRemainingSeconds");
  return progress;
}

Json ProgressJson(const JobProgress& progress) {
  Json json = {{"step", progress.step}, {"lastUpdatedTime", TimeText(progress.last_updated)}};
  if (progress.total_steps) json["totalSteps"] = *progress.total_steps;
  if (progress.percentage) json["percentage"] = *progress.percentage;
  if (progress.remaining_seconds) json["estimatedRemainingSeconds"] = *progress.remaining_seconds;
  if (!progress.samples_per_second.empty()) json["samplesPerSecond"] = progress.samples_per_second;
  if (!progress.loss.empty()) json["loss"] = progress.loss;
  return json;
}

LastFailure ReadFailure(const Json& json) {
  LastFailure failure{.replica = Count(json, "replica"),
                      .role = Text(json, "role"),
                      .reason = Text(json, "reason"),
                      .message = Text(json, "message")};
  if (json.contains("process")) failure.process = Count(json, "process");
  if (json.contains("exitCode")) failure.exit_code = Count(json, "exitCode");
  return failure;
}

Json FailureJson(const LastFailure& failure) {
  Json json = {{"replica", failure.replica}, {"reason", failure.reason}, {"message", failure.message}};
  if (!failure.role.empty()) json["role"] = failure.role;
  if (failure.process) json["process"] = *failure.process;
  if (failure.exit_code) json["exitCode"] = *failure.exit_code;
  return json;
}

}  // namespace

std::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kPending:
      return "Pending";
    case Phase::kScheduled:
      return "Scheduled";
    case Phase::kRunning:
      return "Running";
    case Phase::kRestarting:
      return "Restarting";
    case Phase::kSuspended:
      return "Suspended";
    case Phase::kSucceeded:
      return "Succeeded";
    case Phase::kFailed:
      return "Failed";
  }
  return "";
}

const Condition* JobStatus::Find(std::string_view type) const {
  for (const Condition& condition : conditions) {
    if (condition.type == type) return &condition;
  }
  return nullptr;
}

bool JobStatus::Is(std::string_view type) const {
  const Condition* condition = Find(type);
  return condition != nullptr && condition->status;
}

void JobStatus::Set(std::string_view type, bool status, std::string reason, std::string message, Time now) {
  auto found = std::find_if(conditions.begin(), conditions.end(),
                            [type](const Condition& condition) { return condition.type == type; });
  if (found == conditions.end()) {
    found = conditions.insert(conditions.end(), {.type = std::string(type), .last_transition = now});
  } else if (found->status != status) {
    found->last_transition = now;
  }
  found->status = status;
  found->reason = std::move(reason);
  found->message = std::move(message);
  found->observed_generation = observed_generation;
}

JobStatus ReadStatus(const Json& json) {
  JobStatus status;
  const std::string phase = Text(json, "phase");
  for (const Phase known : kPhases) {
    if (phase == PhaseName(known)) status.phase = known;
  }
  status.observed_generation = Integer(json, "observedGeneration");
  for (const Json& condition : Items(json, "conditions"))
    status.conditions.push_back(ReadCondition(condition));
  const Json& replicas = Child(json, "replicas");
  status.replicas = {.desired = Count(replicas, "desired"),
                     .active = Count(replicas, "active"),
                     .ready = Count(replicas, "ready"),
                     .succeeded = Count(replicas, "succeeded"),
                     .failed = Count(replicas, "failed")};
  status.attempt = Count(json, "attempt");
  status.restarts = Count(json, "restarts");
  status.start_time = ReadTime(json, "startTime");
  status.completion_time = ReadTime(json, "completionTime");
  if (Child(json, "progress").is_object()) status.progress = ReadProgress(Child(json, "progress"));
  if (Child(json, "lastFailure").is_object()) status.last_failure = ReadFailure(Child(json, "lastFailure"));
  return status;
}

Json StatusJson(const JobStatus& status) {
  Json json = {{"observedGeneration", status.observed_generation},
               {"attempt", status.attempt},
               {"restarts", status.restarts},
               {"conditions", Json::array()},
               {"replicas",
                {{"desired", status.replicas.desired},
                 {"active", status.replicas.active},
                 {"ready", status.replicas.ready},
                 {"succeeded", status.replicas.succeeded},
                 {"failed", status.replicas.failed}}}};
  if (status.phase) json["phase"] = PhaseName(*status.phase);
  for (const Condition& condition : status.conditions) json["conditions"].push_back(ConditionJson(condition));
  if (status.start_time) json["startTime"] = TimeText(*status.start_time);
  if (status.completion_time) json["completionTime"] = TimeText(*status.completion_time);
  if (status.progress) json["progress"] = ProgressJson(*status.progress);
  if (status.last_failure) json["lastFailure"] = FailureJson(*status.last_failure);
  return json;
}

Json StatusPatch(const JobStatus& status) {
  Json patch = StatusJson(status);
  const auto fill = [](Json& object, std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      if (!object.contains(key)) object[key] = nullptr;
    }
  };
  fill(patch, {"startTime", "completionTime", "progress", "lastFailure"});
  if (patch["progress"].is_object()) {
    fill(patch["progress"],
         {"totalSteps", "percentage", "estimatedRemainingSeconds", "samplesPerSecond", "loss"});
  }
  if (patch["lastFailure"].is_object()) fill(patch["lastFailure"], {"role", "process", "exitCode"});
  return patch;
}

std::string TimeText(Time time) { return FormatTime(time); }

std::optional<Time> ReadTime(const Json& object, std::string_view key) {
  const auto time = ParseTime(Text(object, key));
  if (!time) return {};
  return std::chrono::floor<std::chrono::seconds>(*time);
}

}  // namespace lockstep::op
