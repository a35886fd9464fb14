#include "launcher/operator/observe.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/cut_text.h"
#include "launcher/operator/json_fields.h"
#include "launcher/operator/names.h"

namespace lockstep::op {

using Json = nlohmann::json;

namespace {

constexpr size_t kMaxMessage = 1024;  // of what is kept of a text for people

int Number(const std::string& text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return std::max(number, 0);
}

std::string Cut(std::string text) { return CutText(std::move(text), kMaxMessage); }

const Json& Meta(const Json& object) { return Child(object, "metadata"); }
const Json& Labels(const Json& object) { return Child(Meta(object), "labels"); }

void ReadJobCondition(const Json& condition, ChildJob& job) {
  if (Text(condition, "status") != "True") return;
  const std::string type = Text(condition, "type");
  if (type == "Complete") job.complete = true;
  if (type != "Failed" && type != "FailureTarget") return;
  job.failing = true;
  job.failed_at = ReadTime(condition, "lastTransitionTime").value_or(Time());
  job.failure_reason = Text(condition, "reason");
  job.failure_message = Cut(Text(condition, "message"));
}

void ReadContainer(const Json& container, ChildPod& pod) {
  if (Text(container, "name") != kContainer) return;
  const Json& waiting = Child(Child(container, "state"), "waiting");
  pod.waiting = Text(waiting, "reason");
  pod.waiting_message = Cut(Text(waiting, "message"));
  const Json& terminated = Child(Child(container, "state"), "terminated");
  if (!terminated.is_object()) return;
  pod.exit_code = static_cast<int>(Integer(terminated, "exitCode"));
  pod.ended_at = ReadTime(terminated, "finishedAt");
  pod.exit_reason = Text(terminated, "reason");
  pod.exit_message = Text(terminated, "message");
}

// Of a pod whose agent has not begun: its init containers are what keeps it from that.
void ReadInitContainer(const Json& container, ChildPod& pod) {
  const Json& waiting = Child(Child(container, "state"), "waiting");
  if (const std::string reason = Text(waiting, "reason"); !reason.empty() && reason != "PodInitializing") {
    pod.waiting = reason;
    pod.waiting_message = Cut(Text(waiting, "message"));
  }
  const Json& terminated = Child(Child(container, "state"), "terminated");
  if (Integer(terminated, "exitCode") == 0) return;
  pod.exit_code = static_cast<int>(Integer(terminated, "exitCode"));
  pod.exit_reason = Text(terminated, "reason");
  std::string message = Text(terminated, "message");
  message.erase(message.find_last_not_of('\n') + 1);
  pod.exit_message = Cut(Text(container, "name") + ": " + message);
}

}  // namespace

std::string OwnerUid(const Json& object, std::string_view kind) {
  for (const Json& owner : Items(Meta(object), "ownerReferences")) {
    if (Flag(owner, "controller") && Text(owner, "kind") == kind) return Text(owner, "uid");
  }
  return {};
}

ObservedJob ReadTrainingJob(const Json& object) {
  const Json& meta = Meta(object);
  ObservedJob job{.space = Text(meta, "namespace"),
                  .name = Text(meta, "name"),
                  .uid = Text(meta, "uid"),
                  .resource_version = Text(meta, "resourceVersion"),
                  .generation = Integer(meta, "generation"),
                  .created = ReadTime(meta, "creationTimestamp").value_or(Time()),
                  .deleting = meta.contains("deletionTimestamp"),
                  .queue = Text(Labels(object), kQueueLabel),
                  .priority_class = Text(Labels(object), kPriorityClassLabel),
                  .spec = Child(object, "spec").dump()};
  job.status = ReadStatus(Child(object, "status"));
  return job;
}

ChildJob ReadChildJob(const Json& object) {
  const Json& meta = Meta(object);
  const Json& status = Child(object, "status");
  ChildJob job{.name = Text(meta, "name"),
               .uid = Text(meta, "uid"),
               .role = Text(Labels(object), kRoleLabel),
               .attempt = Number(Text(Labels(object), kAttemptLabel)),
               .restarts_before = Number(Text(Child(meta, "annotations"), kRestartsAnnotation)),
               .pods = Text(Child(meta, "annotations"), kPodsAnnotation),
               .deleting = Child(meta, "deletionTimestamp").is_string(),
               .suspended = Flag(Child(object, "spec"), "suspend"),
               .created = ReadTime(meta, "creationTimestamp").value_or(Time()),
               .started = ReadTime(status, "startTime"),
               .active = Count(status, "active"),
               .ready = Count(status, "ready"),
               .succeeded = Count(status, "succeeded"),
               .failed = Count(status, "failed")};
  for (const Json& condition : Items(status, "conditions")) ReadJobCondition(condition, job);
  return job;
}

ChildPod ReadChildPod(const Json& object) {
  const Json& meta = Meta(object);
  const Json& status = Child(object, "status");
  ChildPod pod{.name = Text(meta, "name"),
               .uid = Text(meta, "uid"),
               .job_uid = OwnerUid(object, "Job"),
               .role = Text(Labels(object), kRoleLabel),
               .attempt = Number(Text(Labels(object), kAttemptLabel)),
               .index = Number(Text(Labels(object), kPodIndexLabel)),
               .delete_by = ReadTime(meta, "deletionTimestamp"),
               .address = Text(status, "podIP")};
  const std::string phase = Text(status, "phase");
  if (phase == "Running") pod.phase = PodPhase::kRunning;
  if (phase == "Succeeded") pod.phase = PodPhase::kSucceeded;
  if (phase == "Failed") pod.phase = PodPhase::kFailed;
  for (const Json& condition : Items(status, "conditions")) {
    const std::string type = Text(condition, "type");
    const bool holds = Text(condition, "status") == "True";
    if (type == "PodScheduled") {
      pod.scheduled = holds;
      if (!holds) pod.unschedulable = Cut(Text(condition, "message"));
    }
    if (type == "DisruptionTarget" && holds) pod.disrupted = true;
  }
  for (const Json& container : Items(status, "containerStatuses")) ReadContainer(container, pod);
  if (pod.waiting == "PodInitializing") {
    for (const Json& container : Items(status, "initContainerStatuses")) ReadInitContainer(container, pod);
  }
  return pod;
}

std::optional<AgentReport> ReadAgentReport(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return {};
  AgentReport report{.restarts = Count(json, "restarts"), .restarting = Text(json, "phase") == "Restarting"};
  // The agent's status document names these as ours does.
  JobStatus status = ReadStatus(json);
  report.progress = std::move(status.progress);
  report.last_failure = std::move(status.last_failure);
  if (report.last_failure) report.last_failure->message = Cut(report.last_failure->message);
  return report;
}

std::optional<Verdict> ReadVerdict(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("exitCode")) return {};
  Verdict verdict{.exit_code = Count(json, "exitCode"),
                  .reason = Text(json, "reason"),
                  .message = Cut(Text(json, "message")),
                  .replica = Count(json, "replica")};
  if (json.contains("process")) verdict.process = Count(json, "process");
  return verdict;
}

std::string VerdictText(const Verdict& verdict) {
  Json json = {{"exitCode", verdict.exit_code},
               {"reason", verdict.reason},
               {"message", Cut(verdict.message)},
               {"replica", verdict.replica}};
  if (verdict.process) json["process"] = *verdict.process;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep::op
