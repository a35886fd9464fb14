#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "launcher/operator/observe.h"

// What the operator's page shows: some of the TrainingJobs that the watches know. Pure.
namespace lockstep::op {

struct JobQuery {
  // Words; each has to be in the job's "namespace/name queue phase", in whatever case. Empty: all jobs.
  std::string search = {};
  std::string phase = {};  // "Running"; empty: any
};

// More are counted, but not listed.
inline constexpr size_t kMostListedJobs = 200;

struct ListedJob {
  std::string space;
  std::string name;
  std::string queue;
  Time created{};
  JobStatus status;
};

struct JobList {
  size_t total = 0;                  // jobs that there are
  size_t matching = 0;               // the query
  std::vector<ListedJob> jobs = {};  // of those, the newest first, then by name; at most kMostListedJobs
};

// `all` holds no null pointers.
JobList FindJobs(const std::vector<const ObservedJob*>& all, const JobQuery& query);

// The JSON of /jobs. Of a job it has what the API's status has, and `message`: its last failure, or what its
// newest condition says.
std::string JobListDocument(const JobList& list, const std::map<std::string, int>& by_phase, bool synced);

}  // namespace lockstep::op
