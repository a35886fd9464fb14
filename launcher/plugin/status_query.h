#pragma once

#include <chrono>

#include "launcher/kube/client.h"
#include "launcher/plugin/status_view.h"

namespace lockstep::plugin {

struct QueryOptions {
  kube::ObjectName name;
  int most_agents = 64;                     // that are asked, the lowest indices first
  std::chrono::milliseconds timeout{5000};  // for all agents together; the rest have the client's
};

// The job, its pods, and what their agents say, which are asked eight at a time. An agent that gives no
// answer is no error: PodView::silent says why. kNotFound: no such job.
kube::Answer<JobView> AskForStatus(kube::Client& client, const QueryOptions& options);

// All pods of the TrainingJob with this uid, of any attempt.
kube::Answer<std::vector<PodView>> PodsOf(kube::Client& client, const std::string& space,
                                          const std::string& uid);

}  // namespace lockstep::plugin
