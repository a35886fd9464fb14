#include "launcher/spec/crd_status.h"

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::spec {

namespace {

using Json = nlohmann::ordered_json;

Json Field(const char* type, const char* description) {
  return {{"type", type}, {"description", description}};
}
Json Count(const char* description) {
  return {{"type", "integer"}, {"format", "int64"}, {"minimum", 0}, {"description", description}};
}
Json Time(const char* description) {
  return {{"type", "string"}, {"format", "date-time"}, {"description", description}};
}
Json Object(const char* description, Json properties) {
  return {{"type", "object"}, {"description", description}, {"properties", std::move(properties)}};
}

Json Conditions() {
  Json item = Object("One aspect of the job, and since when.", {});
  item["required"] = {"type", "status", "lastTransitionTime", "reason", "message"};
  item["properties"] = {
      {"type", Field("string",
                     "Suspended, Scheduled, Running, Restarting, Complete or Failed; or what else there is "
                     "to say of the job.")},
      {"status",
       {{"type", "string"}, {"enum", {"True", "False", "Unknown"}}, {"description", "Whether it holds."}}},
      {"observedGeneration", Count("The generation of the spec that it was said of.")},
      {"lastTransitionTime", Time("When its status changed last.")},
      {"reason", Field("string", "Why, in one CamelCase word.")},
      {"message", Field("string", "Why, in a sentence.")}};
  return {{"type", "array"},
          {"description",
           "Suspended, Scheduled, Running, Restarting, Complete and Failed, each with its reason."},
          {"x-kubernetes-list-type", "map"},
          {"x-kubernetes-list-map-keys", {"type"}},
          {"items", std::move(item)}};
}

Json Column(const char* name, const char* type, const char* path, const char* description, int priority = 0) {
  Json column = {{"name", name}, {"type", type}, {"jsonPath", path}, {"description", description}};
  if (priority > 0) column["priority"] = priority;
  return column;
}

}  // namespace

Json StatusSchema() {
  Json phase = {
      {"type", "string"},
      {"enum", {"Pending", "Scheduled", "Running", "Restarting", "Suspended", "Succeeded", "Failed"}},
      {"description",
       "The conditions in one word: Pending, Scheduled, Running, Restarting, Suspended, Succeeded or "
       "Failed."}};
  return Object(
      "What has become of the job; written by the operator.",
      {{"phase", std::move(phase)},
       {"observedGeneration", Count("The generation of the spec that the status speaks of.")},
       {"conditions", Conditions()},
       {"replicas", Object("How many replicas there are.",
                           {{"desired", Count("As many as the spec asks for.")},
                            {"active", Count("Whose pods are there and have not ended.")},
                            {"ready", Count("Whose processes have made their first step.")},
                            {"succeeded", Count("That are done.")},
                            {"failed", Count("That have failed.")}})},
       {"attempt", Count("How often the job was begun anew with new pods, from 0.")},
       {"restarts", Count("How often its processes were started again, in the same pods or in new ones.")},
       {"startTime", Time("When the job was first let run.")},
       {"completionTime", Time("When it was done, or had failed.")},
       {"progress",
        Object("How far the training is, as replica 0 says it, every ten seconds at most.",
               {{"step", Count("Steps that are made.")},
                {"totalSteps", Count("Steps that there are to make, where that is known.")},
                {"percentage", Count("The part of the steps that is made, in percent.")},
                {"estimatedRemainingSeconds", Count("The time that is left at the speed of late.")},
                {"samplesPerSecond", Field("string", "The speed of late.")},
                {"loss", Field("string", "The loss of the last step.")},
                {"lastUpdatedTime", Time("When that was read.")}})},
       {"lastFailure", Object("The failure that was seen last, of the process that failed first.",
                              {{"replica", Count("Its replica, counted over all roles.")},
                               {"role", Field("string", "Its role, in a job of several.")},
                               {"process", Count("Its number within the replica.")},
                               {"exitCode", Count("Its exit code; 128 + n is signal n.")},
                               {"reason", Field("string", "In one CamelCase word: OOMKilled.")},
                               {"message", Field("string", "In a sentence.")}})}});
}

Json PrinterColumns() {
  return {Column("Phase", "string", ".status.phase", "The state of the job."),
          Column("Ready", "integer", ".status.replicas.ready", "Replicas that train."),
          Column("Step", "integer", ".status.progress.step", "Steps that are made."),
          Column("Progress", "integer", ".status.progress.percentage", "The part of the steps, in percent."),
          Column("Throughput", "string", ".status.progress.samplesPerSecond", "Samples a second."),
          Column("ETA", "integer", ".status.progress.estimatedRemainingSeconds", "Seconds that are left."),
          Column("Restarts", "integer", ".status.restarts", "How often the processes were started again."),
          Column("Age", "date", ".metadata.creationTimestamp", "Since when the job is there."),
          Column("Loss", "string", ".status.progress.loss", "The loss of the last step.", 1),
          Column("Strategy", "string", ".spec.strategy.type", "What the processes exchange.", 1)};
}

}  // namespace lockstep::spec
