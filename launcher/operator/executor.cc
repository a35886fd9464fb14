#include "launcher/operator/executor.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/contract/token.h"
#include "common/log.h"
#include "common/wall_time.h"
#include "launcher/operator/gang.h"
#include "launcher/operator/json_fields.h"
#include "launcher/operator/names.h"
#include "launcher/spec/fields_job.h"

namespace lockstep::op {

using kube::Json;
using kube::Reason;
using Kind = Executor::Outcome::Kind;

namespace {

std::string Hexadecimal(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

Executor::Outcome Again(const kube::Error& error) { return {Kind::kAgain, error.message}; }

}  // namespace

Executor::Outcome Executor::Do(const Observed& observed, const Manifest& manifest, const Action& action) {
  const ObservedJob& job = observed.job;
  if (std::holds_alternative<CreateSecret>(action)) {
    const std::string token = Hexadecimal(contract::RandomBytes(contract::Token::kBytes));
    return Make(job, kube::kSecrets, TokenSecret(job, token));
  }
  if (const auto* service = std::get_if<CreateService>(&action)) {
    return Make(job, kube::kServices, HeadlessService(job, service->role));
  }
  if (const auto* gang = std::get_if<CreateGang>(&action)) {
    const kube::Resource group = GangResource(manifest.job->run_policy.gang);
    Outcome made = Make(job, group, GangObject(job, *manifest.job, gang->attempt));
    if (made.kind == Kind::kMissing) {
      return {Kind::kBlocked, "the cluster has no PodGroups of " + group.api_version(), "GangUnavailable"};
    }
    return made;
  }
  if (const auto* gang = std::get_if<DeleteGang>(&action)) {
    return DeleteOwned(job, GangResource(manifest.job->run_policy.gang), GangName(job.name, gang->attempt));
  }
  if (const auto* create = std::get_if<CreateJob>(&action)) {
    return Make(job, kube::kJobs, JobObject(job, manifest, *create, options_));
  }
  if (const auto* suspend = std::get_if<SuspendJob>(&action)) {
    const Json patch = {{"metadata", {{"uid", suspend->uid}}}, {"spec", {{"suspend", suspend->suspend}}}};
    const auto answer = client_.MergePatch(kube::kJobs, {job.space, suspend->name}, patch);
    if (answer.ok()) {
      world_.Wrote(job.uid, ReadChildJob(*answer));
    } else if (!answer.failed_with(Reason::kNotFound)) {
      return Again(answer.error());  // kConflict: it is another by now, or changed too often meanwhile
    }
    return {};
  }
  if (const auto* child = std::get_if<DeleteJob>(&action)) {
    return Delete(kube::kJobs, {job.space, child->name}, child->uid);
  }
  return Delete(kube::kTrainingJobs, {job.space, job.name}, job.uid);
}

Executor::Outcome Executor::Make(const ObservedJob& job, const kube::Resource& resource, const Json& object) {
  const kube::ObjectName name{job.space, Text(object["metadata"], "name")};
  auto answer = client_.Create(resource, job.space, object);
  if (answer.failed_with(Reason::kAlreadyExists)) {
    // A Secret cannot be read, nor need it be: its name has the job's uid.
    if (resource == kube::kSecrets) return {};
    answer = client_.Get(resource, name);
    if (answer.ok() && OwnerUid(*answer, spec::kKind) != job.uid) {
      return {Kind::kBlocked,
              "the " + std::string(resource.kind) + " " + name.ToString() + " is there and not of this job",
              "NameTaken"};
    }
  }
  if (answer.failed_with(Reason::kForbidden)) {
    // What else the admission plugins say of a namespace is for people: a quota, a policy.
    const bool ends = answer.error().message.find("because it is being terminated") != std::string::npos;
    if (ends) return {Kind::kGone, answer.error().message};
    return {Kind::kBlocked, answer.error().message, "Forbidden"};
  }
  // A kind that the cluster has not, or a namespace that is gone.
  if (answer.failed_with(Reason::kNotFound)) return {Kind::kMissing, answer.error().message};
  if (answer.failed_with(Reason::kInvalid) || answer.failed_with(Reason::kBadRequest)) {
    return {Kind::kRefused, answer.error().message};
  }
  if (!answer.ok()) return Again(answer.error());
  if (resource == kube::kJobs) world_.Wrote(job.uid, ReadChildJob(*answer));
  return {};
}

Executor::Outcome Executor::DeleteOwned(const ObservedJob& job, const kube::Resource& resource,
                                        const std::string& name) {
  const auto answer = client_.Get(resource, {job.space, name});
  if (answer.failed_with(Reason::kNotFound)) return {};
  if (!answer.ok()) return Again(answer.error());
  if (OwnerUid(*answer, spec::kKind) != job.uid) return {};
  return Delete(resource, {job.space, name}, Text((*answer)["metadata"], "uid"));
}

Executor::Outcome Executor::Delete(const kube::Resource& resource, const kube::ObjectName& name,
                                   const std::string& uid) {
  const auto answer = client_.Delete(resource, name, {.uid = uid});
  if (answer.ok() || answer.failed_with(Reason::kNotFound)) return {};
  return Again(answer.error());  // kConflict: another's by now, as the watch will say
}

Executor::Outcome Executor::WriteStatus(const ObservedJob& job, const JobStatus& status) {
  const Json patch = {{"metadata", {{"uid", job.uid}, {"resourceVersion", job.resource_version}}},
                      {"status", StatusPatch(status)}};
  auto answer =
      client_.MergePatch(kube::kTrainingJobs, {job.space, job.name}, patch, {.subresource = "status"});
  if (answer.failed_with(Reason::kNotFound)) return {};
  if (answer.failed_with(Reason::kInvalid)) return {Kind::kRefused, answer.error().message};
  if (!answer.ok()) return Again(answer.error());
  world_.Wrote(ReadTrainingJob(*answer));
  return {};
}

void Executor::Tell(const ObservedJob& job, const PlannedEvent& event) {
  const auto now = std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
  const std::string time = FormatTime(now);
  constexpr size_t kMaxMessage = 1024;  // of an Event
  const Json object = {
      {"metadata",
       {{"name", job.name + "." + Hexadecimal(contract::RandomBytes(8))}, {"namespace", job.space}}},
      {"involvedObject",
       {{"apiVersion", spec::kApiVersion},
        {"kind", spec::kKind},
        {"namespace", job.space},
        {"name", job.name},
        {"uid", job.uid},
        {"resourceVersion", job.resource_version}}},
      {"type", event.warning ? "Warning" : "Normal"},
      {"reason", event.reason},
      {"message", event.message.substr(0, kMaxMessage)},
      {"source", {{"component", "lockstep-operator"}}},
      {"count", 1},
      {"firstTimestamp", time},
      {"lastTimestamp", time}};
  const auto answer = client_.Create(kube::kEvents, job.space, object);
  if (!answer.ok()) log::Warning("an event is lost: " + answer.error().message);
}

}  // namespace lockstep::op
