#include "launcher/operator/world.h"

#include <malloc.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "common/log.h"
#include "launcher/operator/json_fields.h"
#include "launcher/operator/names.h"

namespace lockstep::op {

using kube::Json;

namespace {

constexpr int kKinds = 4;

ChildService ReadService(const Json& object) {
  const Json& meta = Child(object, "metadata");
  return {.name = Text(meta, "name"), .uid = Text(meta, "uid")};
}

// Children are matched by their owner. A pod's is the batch/v1 Job: it is the Job controller that copies the
// label.
std::string JobUidOf(const Json& object, bool pod) {
  if (!pod) return OwnerUid(object, "TrainingJob");
  return Text(Child(Child(object, "metadata"), "labels"), kJobUidLabel);
}

uint64_t Version(const ObservedJob& job) {
  uint64_t version = 0;
  const std::string& text = job.resource_version;
  std::from_chars(text.data(), text.data() + text.size(), version);
  return version;
}

void SayFailed(const char* what, const kube::Error& error, std::chrono::milliseconds pause) {
  log::Warning(std::string("watching ") + what + ": " + error.message + "; again in " +
               std::to_string(pause.count()) + " ms");
}

}  // namespace

class World::TrainingJobSink : public kube::FollowSink {
 public:
  explicit TrainingJobSink(World& world) : world_(world) {}

  void BeginList() override { seen_.emplace(); }

  void Seen(Json& object) override {
    ObservedJob job = ReadTrainingJob(object);
    if (seen_) seen_->insert({job.space, job.name});
    world_.Wrote(std::move(job));
  }

  void Gone(Json& object) override {
    const Json& meta = Child(object, "metadata");
    Erase({Text(meta, "namespace"), Text(meta, "name")});
  }

  void EndList() override {
    std::vector<kube::ObjectName> gone;
    {
      const std::lock_guard lock(world_.mutex_);
      for (const auto& [name, job] : world_.jobs_) {
        if (seen_->count(name) == 0) gone.push_back(name);
      }
    }
    for (const kube::ObjectName& name : gone) Erase(name);
    seen_.reset();
    world_.Listed(0);
  }

  void Failed(const kube::Error& error, std::chrono::milliseconds pause) override {
    SayFailed("TrainingJobs", error, pause);
  }

 private:
  void Erase(const kube::ObjectName& name) {
    {
      const std::lock_guard lock(world_.mutex_);
      const auto found = world_.jobs_.find(name);
      if (found == world_.jobs_.end()) return;
      world_.names_.erase(found->second.uid);
      world_.jobs_.erase(found);
    }
    world_.changed_(name);
  }

  World& world_;
  std::optional<std::set<kube::ObjectName>> seen_;
};

template <class T>
class World::ChildSink : public kube::FollowSink {
 public:
  using Member = Children<T> Owned::*;
  using Reader = T (*)(const Json&);

  ChildSink(World& world, int kind, const char* what, Member member, Reader read)
      : world_(world), kind_(kind), what_(what), member_(member), read_(read) {}

  void BeginList() override { seen_.emplace(); }

  void Seen(Json& object) override {
    const std::string owner = JobUidOf(object, std::is_same_v<T, ChildPod>);
    if (owner.empty()) return;
    T child = read_(object);
    if (seen_) seen_->insert({owner, child.uid});
    {
      const std::lock_guard lock(world_.mutex_);
      T& held = (world_.owned_[owner].*member_)[child.name];
      if (held == child) return;
      held = std::move(child);
    }
    world_.Changed(owner);
  }

  void Gone(Json& object) override {
    const std::string owner = JobUidOf(object, std::is_same_v<T, ChildPod>);
    const Json& meta = Child(object, "metadata");
    {
      const std::lock_guard lock(world_.mutex_);
      const auto found = world_.owned_.find(owner);
      if (found == world_.owned_.end()) return;
      (found->second.*member_).erase(Text(meta, "name"));
      if (found->second.empty()) world_.owned_.erase(found);
    }
    world_.Changed(owner);
  }

  void EndList() override {
    std::set<std::string> changed;
    {
      const std::lock_guard lock(world_.mutex_);
      for (auto owned = world_.owned_.begin(); owned != world_.owned_.end();) {
        const size_t erased = std::erase_if(owned->second.*member_, [&](const auto& child) {
          return seen_->count({owned->first, child.second.uid}) == 0;
        });
        if (erased > 0) changed.insert(owned->first);
        owned = owned->second.empty() ? world_.owned_.erase(owned) : std::next(owned);
      }
    }
    for (const std::string& owner : changed) world_.Changed(owner);
    seen_.reset();
    world_.Listed(kind_);
  }

  void Failed(const kube::Error& error, std::chrono::milliseconds pause) override {
    SayFailed(what_, error, pause);
  }

 private:
  World& world_;
  const int kind_;
  const char* const what_;
  const Member member_;
  const Reader read_;
  std::optional<std::set<std::pair<std::string, std::string>>> seen_;  // while listing: owner and uid
};

std::unique_ptr<kube::FollowSink> World::JobSink() { return std::make_unique<TrainingJobSink>(*this); }
std::unique_ptr<kube::FollowSink> World::ChildJobSink() {
  return std::make_unique<ChildSink<ChildJob>>(*this, 1, "Jobs", &Owned::jobs, ReadChildJob);
}
std::unique_ptr<kube::FollowSink> World::ServiceSink() {
  return std::make_unique<ChildSink<ChildService>>(*this, 2, "Services", &Owned::services, ReadService);
}
std::unique_ptr<kube::FollowSink> World::PodSink() {
  return std::make_unique<ChildSink<ChildPod>>(*this, 3, "Pods", &Owned::pods, ReadChildPod);
}

void World::Changed(const std::string& job_uid) {
  kube::ObjectName name;
  {
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(job_uid);
    if (found == names_.end()) return;
    name = found->second;
  }
  changed_(name);
}

void World::Listed(int kind) {
  ::malloc_trim(0);  // all that was kept of the list is a small part of what it was read with
  std::vector<kube::ObjectName> all;
  {
    const std::lock_guard lock(mutex_);
    const bool before = listed_ == (1 << kKinds) - 1;
    listed_ |= 1 << kind;
    if (before || listed_ != (1 << kKinds) - 1) return;
    for (const auto& [name, job] : jobs_) all.push_back(name);
  }
  for (const kube::ObjectName& name : all) changed_(name);
}

bool World::synced() const {
  const std::lock_guard lock(mutex_);
  return listed_ == (1 << kKinds) - 1;
}

std::optional<Observed> World::Observe(const kube::ObjectName& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = jobs_.find(name);
  if (found == jobs_.end()) return std::nullopt;
  Observed observed;
  observed.job = found->second;
  const auto owned = owned_.find(found->second.uid);
  if (owned == owned_.end()) return observed;
  for (const auto& [key, child] : owned->second.jobs) observed.jobs.push_back(child);
  for (const auto& [key, child] : owned->second.services) observed.services.push_back(child);
  for (const auto& [key, child] : owned->second.pods) observed.pods.push_back(child);
  return observed;
}

void World::Wrote(ObservedJob job) {
  const kube::ObjectName name{job.space, job.name};
  {
    const std::lock_guard lock(mutex_);
    ObservedJob& held = jobs_[name];
    // What a write was answered with may be ahead of the watch; versions of one object are ordered numbers.
    if (held.uid == job.uid && Version(job) <= Version(held)) return;
    if (!held.uid.empty() && held.uid != job.uid) names_.erase(held.uid);
    names_[job.uid] = name;
    held = std::move(job);
  }
  changed_(name);
}

void World::Wrote(const std::string& job_uid, ChildJob child) {
  {
    const std::lock_guard lock(mutex_);
    ChildJob& held = owned_[job_uid].jobs[child.name];
    if (held == child) return;
    held = std::move(child);
  }
  Changed(job_uid);
}

std::map<std::string, int> World::JobsByPhase() const {
  std::map<std::string, int> counts;
  for (const Phase phase : {Phase::kPending, Phase::kScheduled, Phase::kRunning, Phase::kRestarting,
                            Phase::kSuspended, Phase::kSucceeded, Phase::kFailed}) {
    counts[std::string(PhaseName(phase))] = 0;
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [name, job] : jobs_) {
    counts[std::string(PhaseName(job.status.phase.value_or(Phase::kPending)))] += 1;
  }
  return counts;
}

JobList World::Find(const JobQuery& query) const {
  const std::lock_guard lock(mutex_);
  std::vector<const ObservedJob*> all;
  all.reserve(jobs_.size());
  for (const auto& [name, job] : jobs_) all.push_back(&job);
  return FindJobs(all, query);
}

}  // namespace lockstep::op
