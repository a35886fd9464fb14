#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "launcher/kube/follow.h"
#include "launcher/operator/job_list.h"
#include "launcher/operator/observe.h"

namespace lockstep::op {

// All TrainingJobs and what belongs to them, as the watches last said; of each object what observe.h keeps.
// Safe from every thread.
class World {
 public:
  // `changed` is called, outside of all locks, with each job that something changed about.
  explicit World(std::function<void(const kube::ObjectName&)> changed) : changed_(std::move(changed)) {}

  // For kube::Follow; one each, that outlives it. Children are to be followed with the label kJobUidLabel.
  std::unique_ptr<kube::FollowSink> JobSink();
  std::unique_ptr<kube::FollowSink> ChildJobSink();
  std::unique_ptr<kube::FollowSink> ServiceSink();
  std::unique_ptr<kube::FollowSink> PodSink();

  // Every list has been complete once.
  bool synced() const;

  // Empty: there is no such job.
  std::optional<Observed> Observe(const kube::ObjectName& name) const;
  // What a write was answered with, ahead of its watch.
  void Wrote(ObservedJob job);
  void Wrote(const std::string& job_uid, ChildJob child);

  std::map<std::string, int> JobsByPhase() const;
  JobList Find(const JobQuery& query) const;

 private:
  template <class T>
  using Children = std::map<std::string, T>;  // by name
  struct Owned {
    Children<ChildJob> jobs;
    Children<ChildService> services;
    Children<ChildPod> pods;
    bool empty() const { return jobs.empty() && services.empty() && pods.empty(); }
  };
  template <class T>
  class ChildSink;
  class TrainingJobSink;

  void Changed(const std::string& job_uid);
  void Listed(int kind);

  const std::function<void(const kube::ObjectName&)> changed_;
  mutable std::mutex mutex_;
  std::map<kube::ObjectName, ObservedJob> jobs_;
  std::unordered_map<std::string, kube::ObjectName> names_;  // by uid
  std::unordered_map<std::string, Owned> owned_;             // by the job's uid
  int listed_ = 0;                                           // a bit a kind
};

}  // namespace lockstep::op
