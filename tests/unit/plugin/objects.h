#pragma once

#include <nlohmann/json.hpp>
#include <string>

// Objects of the API as the tests of this folder need them.
namespace lockstep::testing {

using Json = nlohmann::json;

inline Json Job(const std::string& phase = "Running") {
  return {
      {"apiVersion", "lockstep.dev/v1alpha1"},
      {"kind", "TrainingJob"},
      {"metadata", {{"name", "mnist"}, {"namespace", "team"}, {"uid", "job-uid"}, {"resourceVersion", "7"}}},
      {"spec", {{"replicas", 2}}},
      {"status",
       {{"phase", phase},
        {"attempt", 1},
        {"restarts", 1},
        {"startTime", "2026-01-31T12:00:00Z"},
        {"replicas", {{"desired", 2}, {"active", 2}, {"ready", 2}}},
        {"progress",
         {{"step", 100},
          {"totalSteps", 400},
          {"percentage", 25},
          {"lastUpdatedTime", "2026-01-31T12:01:50Z"}}},
        {"lastFailure",
         {{"replica", 1},
          {"process", 0},
          {"exitCode", 137},
          {"reason", "OOMKilled"},
          {"message", "bad\x1b[2J"}}}}}};
}

inline Json Pod(int index, int attempt = 1, const std::string& phase = "Running") {
  const std::string name = "mnist-worker-" + std::to_string(attempt) + "-" + std::to_string(index);
  return {
      {"apiVersion", "v1"},
      {"kind", "Pod"},
      {"metadata",
       {{"name", name},
        {"uid", "uid-" + name},
        {"labels",
         {{"lockstep.dev/role", "worker"},
          {"lockstep.dev/attempt", std::to_string(attempt)},
          {"batch.kubernetes.io/job-completion-index", std::to_string(index)}}}}},
      {"spec",
       {{"nodeName", "node-" + std::to_string(index)},
        {"containers", {{{"name", "lockstep"}, {"ports", {{{"name", "http"}, {"containerPort", 8081}}}}}}}}},
      {"status",
       {{"phase", phase},
        {"podIP", "10.0.0." + std::to_string(index + 1)},
        {"conditions",
         {{{"type", "PodScheduled"}, {"status", "True"}}, {{"type", "Ready"}, {"status", "True"}}}}}}};
}

// /status of the agent of replica `index` with two ranks. `own` is what its first rank takes of a step
// itself.
inline std::string Agent(int index, const char* own = "0.0010") {
  const auto rank = [&](int number, const char* collective) {
    return Json{{"rank", number},
                {"role", "worker"},
                {"replica", index},
                {"process", number % 2},
                {"state", "Running"},
                {"phase", "Training"},
                {"step", 120},
                {"stepSeconds", "0.0040"},
                {"memoryBytes", 1 << 30},
                {"collectiveSeconds", collective},
                {"device", {{"type", "GPU"}}}};
  };
  const std::string collective = std::to_string(0.0040 - std::stod(own));
  return Json{{"phase", "Running"},
              {"restarts", 0},
              {"progress",
               {{"step", 120},
                {"totalSteps", 400},
                {"percentage", 30},
                {"samplesPerSecond", "90321"},
                {"loss", "0.31"},
                {"estimatedRemainingSeconds", 75},
                {"lastUpdatedTime", "2026-01-31T12:01:58Z"}}},
              {"ranks", {rank(index * 2, collective.c_str()), rank(index * 2 + 1, "0.0030")}}}
      .dump();
}

}  // namespace lockstep::testing
