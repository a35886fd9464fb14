#include "launcher/operator/job_list.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <tuple>

#include "common/lower_case.h"

namespace lockstep::op {

namespace {

std::string_view PhaseOf(const ObservedJob& job) {
  return PhaseName(job.status.phase.value_or(Phase::kPending));
}

bool Matches(const ObservedJob& job, const std::vector<std::string>& words, const std::string& phase) {
  if (!phase.empty() && PhaseOf(job) != phase) return false;
  if (words.empty()) return true;
  const std::string text =
      LowerCase(job.space + "/" + job.name + " " + job.queue + " " + std::string(PhaseOf(job)));
  return std::all_of(words.begin(), words.end(),
                     [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

std::string MessageOf(const JobStatus& status) {
  const Condition* const failed = status.Find(kFailed);
  if (failed != nullptr && failed->status && !failed->message.empty()) return failed->message;
  if (status.last_failure && !status.Is(kComplete)) return status.last_failure->message;
  const Condition* newest = nullptr;
  for (const Condition& condition : status.conditions) {
    if (newest == nullptr || condition.last_transition >= newest->last_transition) newest = &condition;
  }
  return newest == nullptr ? "" : newest->message;
}

nlohmann::json JobJson(const ListedJob& job) {
  nlohmann::json json = StatusJson(job.status);
  json.erase("conditions");
  json.erase("lastFailure");
  json["namespace"] = job.space;
  json["name"] = job.name;
  if (!job.queue.empty()) json["queue"] = job.queue;
  json["phase"] = PhaseName(job.status.phase.value_or(Phase::kPending));
  json["creationTime"] = TimeText(job.created);
  json["message"] = MessageOf(job.status);
  return json;
}

}  // namespace

JobList FindJobs(const std::vector<const ObservedJob*>& all, const JobQuery& query) {
  std::vector<std::string> words;
  std::istringstream text(LowerCase(query.search));
  for (std::string word; text >> word;) words.push_back(word);
  std::vector<const ObservedJob*> found;
  std::copy_if(all.begin(), all.end(), std::back_inserter(found),
               [&](const ObservedJob* job) { return Matches(*job, words, query.phase); });
  JobList list{.total = all.size(), .matching = found.size()};
  const size_t listed = std::min(found.size(), kMostListedJobs);
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(listed), found.end(),
                    [](const ObservedJob* a, const ObservedJob* b) {
                      return std::tie(b->created, a->space, a->name) <
                             std::tie(a->created, b->space, b->name);
                    });
  found.resize(listed);
  for (const ObservedJob* job : found) {
    list.jobs.push_back({.space = job->space,
                         .name = job->name,
                         .queue = job->queue,
                         .created = job->created,
                         .status = job->status});
  }
  return list;
}

std::string JobListDocument(const JobList& list, const std::map<std::string, int>& by_phase, bool synced) {
  nlohmann::json json = {{"synced", synced},
                         {"total", list.total},
                         {"matching", list.matching},
                         {"phases", by_phase},
                         {"jobs", nlohmann::json::array()}};
  for (const ListedJob& job : list.jobs) json["jobs"].push_back(JobJson(job));
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::op
