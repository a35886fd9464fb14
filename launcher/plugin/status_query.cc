#include "launcher/plugin/status_query.h"

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "launcher/operator/names.h"

namespace lockstep::plugin {

namespace {

constexpr size_t kSideBySide = 8;

void AskAgent(kube::Client& client, const std::string& space, kube::Clock::time_point deadline,
              PodView& pod) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - kube::Clock::now());
  if (left.count() <= 0) {
    pod.silent = "there was no time left to ask";
    return;
  }
  const std::string target = pod.pod.name + ":" + std::to_string(pod.http_port);
  const auto answer = client.GetText(
      kube::PathOf(kube::kPods, {.space = space, .name = target}, "proxy/status"), {.timeout = left});
  if (answer.ok()) {
    ReadAgent(*answer, pod);
  } else if (answer.failed_with(kube::Reason::kForbidden)) {
    pod.silent = "you may not get pods/proxy";
  } else {
    pod.silent = answer.error().message;
  }
}

}  // namespace

kube::Answer<std::vector<PodView>> PodsOf(kube::Client& client, const std::string& space,
                                          const std::string& uid) {
  std::vector<PodView> pods;
  const auto listed =
      client.List(kube::kPods, {.space = space, .label_selector = std::string(op::kJobUidLabel) + "=" + uid},
                  [&](kube::Json& object) { pods.push_back(ReadPod(object)); });
  if (!listed.ok()) return listed.error();
  return pods;
}

kube::Answer<JobView> AskForStatus(kube::Client& client, const QueryOptions& options) {
  const auto object = client.Get(kube::kTrainingJobs, options.name);
  if (!object.ok()) return object.error();
  JobView view{.job = op::ReadTrainingJob(*object)};
  auto pods = PodsOf(client, options.name.space, view.job.uid);
  if (!pods.ok()) return pods.error();
  view.pods = Newest(*std::move(pods));

  std::vector<PodView*> to_ask;
  for (PodView& pod : view.pods) {
    if (pod.pod.phase == op::PodPhase::kRunning && pod.http_port > 0) to_ask.push_back(&pod);
  }
  const auto most = static_cast<size_t>(std::max(options.most_agents, 0));
  if (to_ask.size() > most) {
    view.left_out = static_cast<int>(to_ask.size() - most);
    to_ask.resize(most);
  }
  const auto deadline = kube::Clock::now() + options.timeout;
  std::atomic<size_t> next = 0;
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < std::min(kSideBySide, to_ask.size()); ++i) {
    threads.emplace_back([&] {
      for (size_t mine = next++; mine < to_ask.size(); mine = next++) {
        AskAgent(client, options.name.space, deadline, *to_ask[mine]);
      }
    });
  }
  threads.clear();
  return view;
}

}  // namespace lockstep::plugin
