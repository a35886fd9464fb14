#include "launcher/plugin/status_view.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "launcher/operator/json_fields.h"
#include "launcher/operator/names.h"

namespace lockstep::plugin {

using Json = nlohmann::json;
using op::Child;
using op::Items;
using op::Text;

namespace {

// /status has its numbers with fractions as text.
double Decimal(const Json& object, const char* key) {
  return std::strtod(Text(object, key).c_str(), nullptr);
}

RankView ReadRank(const Json& entry) {
  RankView rank{.rank = op::Count(entry, "rank"),
                .state = Text(entry, "state"),
                .phase = Text(entry, "phase"),
                .step = op::Integer(entry, "step"),
                .step_seconds = Decimal(entry, "stepSeconds"),
                .memory_bytes = op::MaybeInteger(entry, "memoryBytes"),
                .device = Text(Child(entry, "device"), "type")};
  if (entry.contains("collectiveSeconds")) rank.collective_seconds = Decimal(entry, "collectiveSeconds");
  if (const auto code = op::MaybeInteger(entry, "exitCode")) rank.exit_code = static_cast<int>(*code);
  return rank;
}

std::vector<int> LeftOut(const Json& status) {
  std::vector<int> replicas;
  for (const Json& replica : Items(Child(status, "replicas"), "leftOut")) {
    if (replica.is_number_integer()) replicas.push_back(replica.get<int>());
  }
  return replicas;
}

}  // namespace

PodView ReadPod(const Json& object) {
  PodView view{.pod = op::ReadChildPod(object),
               .role = Text(Child(Child(object, "metadata"), "labels"), op::kRoleLabel),
               .node = Text(Child(object, "spec"), "nodeName")};
  for (const Json& condition : Items(Child(object, "status"), "conditions")) {
    if (Text(condition, "type") == "Ready") view.ready = Text(condition, "status") == "True";
  }
  for (const Json& container : Items(Child(object, "spec"), "containers")) {
    if (Text(container, "name") != op::kContainer) continue;
    for (const Json& port : Items(container, "ports")) {
      if (Text(port, "name") == "http") view.http_port = op::Count(port, "containerPort");
    }
  }
  return view;
}

void ReadAgent(const std::string& text, PodView& pod) {
  pod.report = op::ReadAgentReport(text);
  if (!pod.report) {
    pod.silent = "what it answered is no status";
    return;
  }
  const Json status = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  pod.left_out = LeftOut(status);
  for (const Json& entry : Items(status, "ranks")) pod.ranks.push_back(ReadRank(entry));
}

std::optional<JobView> ReadLauncher(const std::string& text) {
  const std::optional<op::AgentReport> report = op::ReadAgentReport(text);
  if (!report) return {};
  const Json status = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  JobView view;
  view.job.name = Text(status, "name");
  view.job.space = Text(status, "namespace");
  view.job.status = op::ReadStatus(status);
  std::map<std::pair<std::string, int>, PodView> places;
  for (const Json& entry : Items(status, "ranks")) {
    PodView& place = places[{Text(entry, "role"), op::Count(entry, "replica")}];
    place.ranks.push_back(ReadRank(entry));
  }
  for (auto& [where, place] : places) {
    place.role = where.first;
    place.pod.index = where.second;
    place.report = report;
    place.left_out = LeftOut(status);
    view.pods.push_back(std::move(place));
  }
  return view;
}

std::vector<PodView> Newest(std::vector<PodView> pods) {
  int attempt = 0;
  for (const PodView& pod : pods) attempt = std::max(attempt, pod.pod.attempt);
  std::erase_if(pods, [&](const PodView& pod) { return pod.pod.attempt != attempt; });
  // A pod that was replaced is behind the one in its place.
  const auto rank_of = [](const PodView& pod) { return pod.pod.delete_by || pod.pod.ended() ? 1 : 0; };
  std::stable_sort(pods.begin(), pods.end(), [&](const PodView& a, const PodView& b) {
    return std::make_tuple(a.role, a.pod.index, rank_of(a)) <
           std::make_tuple(b.role, b.pod.index, rank_of(b));
  });
  const auto same = [](const PodView& a, const PodView& b) {
    return a.role == b.role && a.pod.index == b.pod.index;
  };
  pods.erase(std::unique(pods.begin(), pods.end(), same), pods.end());
  return pods;
}

}  // namespace lockstep::plugin
