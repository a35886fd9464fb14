#include "launcher/operator/job_list.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::op {
namespace {

using nlohmann::json;

ObservedJob Job(const std::string& space, const std::string& name, int created, Phase phase) {
  ObservedJob job{.space = space, .name = name, .created = Time(std::chrono::seconds(created))};
  job.status.phase = phase;
  return job;
}

std::vector<const ObservedJob*> PointersTo(const std::vector<ObservedJob>& jobs) {
  std::vector<const ObservedJob*> pointers;
  for (const ObservedJob& job : jobs) pointers.push_back(&job);
  return pointers;
}

std::string Names(const JobList& list) {
  std::string names;
  for (const ListedJob& job : list.jobs) names += (names.empty() ? "" : " ") + job.space + "/" + job.name;
  return names;
}

TEST(JobListTest, FindsByWordsAndPhaseTheNewestFirst) {
  std::vector<ObservedJob> jobs = {
      Job("team-a", "mnist", 10, Phase::kRunning), Job("team-a", "mnist-old", 5, Phase::kFailed),
      Job("team-b", "llama", 20, Phase::kRunning), Job("team-b", "bert", 20, Phase::kPending)};
  jobs[3].queue = "night";
  const auto all = PointersTo(jobs);
  EXPECT_EQ(Names(FindJobs(all, {})), "team-b/bert team-b/llama team-a/mnist team-a/mnist-old");
  EXPECT_EQ(Names(FindJobs(all, {.search = "MNIST"})), "team-a/mnist team-a/mnist-old");
  EXPECT_EQ(Names(FindJobs(all, {.search = " team-a/  failed"})), "team-a/mnist-old");
  EXPECT_EQ(Names(FindJobs(all, {.search = "night"})), "team-b/bert");
  EXPECT_EQ(Names(FindJobs(all, {.search = "team", .phase = "Running"})), "team-b/llama team-a/mnist");
  const JobList none = FindJobs(all, {.search = "mnist llama"});
  EXPECT_EQ(none.total, 4u);
  EXPECT_EQ(none.matching, 0u);
}

TEST(JobListTest, OfManyJobsItListsAFewAndCountsTheRest) {
  std::vector<ObservedJob> jobs;
  for (int i = 0; i < 1000; ++i) jobs.push_back(Job("s", "job-" + std::to_string(i), i, Phase::kRunning));
  const JobList list = FindJobs(PointersTo(jobs), {.search = "job"});
  EXPECT_EQ(list.total, 1000u);
  EXPECT_EQ(list.matching, 1000u);
  ASSERT_EQ(list.jobs.size(), kMostListedJobs);
  EXPECT_EQ(list.jobs.front().name, "job-999");
  EXPECT_EQ(list.jobs.back().name, "job-800");
}

TEST(JobListTest, TheDocumentHasWhatThePageShows) {
  std::vector<ObservedJob> jobs = {Job("s", "a", 0, Phase::kRunning)};
  JobStatus& status = jobs[0].status;
  status.restarts = 2;
  status.replicas = {.desired = 4, .ready = 3};
  status.progress = JobProgress{.step = 10, .total_steps = 100, .percentage = 10, .loss = "0.5"};
  status.Set(kRunning, true, "PodsRunning", "all pods run", Time());
  json document = json::parse(JobListDocument(FindJobs(PointersTo(jobs), {}), {{"Running", 1}}, true));
  EXPECT_EQ(document["synced"], true);
  EXPECT_EQ(document["total"], 1);
  EXPECT_EQ(document["matching"], 1);
  EXPECT_EQ(document["phases"]["Running"], 1);
  const json& job = document["jobs"][0];
  EXPECT_EQ(job["namespace"], "s");
  EXPECT_EQ(job["name"], "a");
  EXPECT_EQ(job["phase"], "Running");
  EXPECT_EQ(job["restarts"], 2);
  EXPECT_EQ(job["replicas"]["ready"], 3);
  EXPECT_EQ(job["progress"]["percentage"], 10);
  EXPECT_EQ(job["creationTime"], "1970-01-01T00:00:00Z");
  EXPECT_EQ(job["message"], "all pods run");

  status.last_failure = LastFailure{.reason = "Signal", .message = "rank 1: killed \xff"};
  document = json::parse(JobListDocument(FindJobs(PointersTo(jobs), {}), {}, false));
  EXPECT_EQ(document["jobs"][0]["message"], "rank 1: killed \xEF\xBF\xBD");
  status.Set(kFailed, true, "MaxRestarts", "restarted too often", Time());
  document = json::parse(JobListDocument(FindJobs(PointersTo(jobs), {}), {}, false));
  EXPECT_EQ(document["jobs"][0]["message"], "restarted too often");
}

}  // namespace
}  // namespace lockstep::op
