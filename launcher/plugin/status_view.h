#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launcher/operator/observe.h"

// plugin/: what `kubectl lockstep` shows of a TrainingJob and kubectl cannot: the ranks behind the pods. For
// people with a kubeconfig; it reads the API and nothing else, the agents through the API server's proxy.
//
//   status_query.h  asks for the job, its pods and their agents   status_view.h  what they say: pure
//   status_text.h   one screen of it: pure
//   pod_logs.h      follows the logs of all pods at once          log_merger.h, log_line.h  one log of them
namespace lockstep::plugin {

// A rank as the agent of its pod sees it (/status).
struct RankView {
  int rank = 0;
  std::string state;  // "Pending", "Running", "Exited"
  std::string phase;  // "Training" …
  int64_t step = 0;
  double step_seconds = 0;                   // 0: none yet
  std::optional<double> collective_seconds;  // empty: an agent that does not say
  std::optional<int64_t> memory_bytes;
  std::optional<int> exit_code;
  std::string device;  // "GPU", "CPU"; empty: not said

  // Of a step, what the rank itself took: the rest is spent with the others, or waiting for them.
  double own_seconds() const { return step_seconds - collective_seconds.value_or(0); }
};

struct PodView {
  op::ChildPod pod;
  std::string role;
  std::string node;
  bool ready = false;
  int http_port = 0;  // its agent's; 0: none is named
  std::vector<RankView> ranks;
  std::optional<op::AgentReport> report;
  std::vector<int> left_out;  // replicas that the job goes on without, as its agent says
  std::string silent;         // why its agent says nothing; empty: it was asked, or need not be
};

struct JobView {
  op::ObservedJob job;
  std::vector<PodView> pods;  // of the newest attempt, by role and index
  // Pods of it that were not asked, since there are so many.
  int left_out = 0;
};

PodView ReadPod(const nlohmann::json& object);
// Fills in what the agent says; `text` is the body of its /status.
void ReadAgent(const std::string& text, PodView& pod);
// A job as one launcher sees it, in no cluster: a pod of it is a replica that has ranks there. Empty when
// `text` is no body of its /status.
std::optional<JobView> ReadLauncher(const std::string& text);

// The pods of the newest attempt among `pods`, one of an index: that which runs, else the newest.
std::vector<PodView> Newest(std::vector<PodView> pods);

}  // namespace lockstep::plugin
