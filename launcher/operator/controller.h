#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "launcher/kube/client.h"
#include "launcher/kube/rate_limit.h"
#include "launcher/operator/executor.h"
#include "launcher/operator/planner.h"
#include "launcher/operator/work_queue.h"
#include "launcher/operator/world.h"
#include "launcher/telemetry/operator_metrics.h"

namespace lockstep::op {

struct ControllerOptions {
  std::string space;  // the only namespace to look at; empty: all
  ChildOptions children;
  Settings settings;
  int workers = 32;
  // Whether only one of several operators acts: the one that holds a Lease of this name.
  bool leader_election = true;
  std::string lease = "lockstep-operator";
  std::string lease_space = "default";
  std::string identity;  // unique among them
};

// Statuses that are written for the sake of progress: together at most 50 in any second.
inline constexpr double kProgressWritesPerSecond = 45;
inline constexpr int kProgressWritesAtOnce = 5;

// Looks at every job when something about it changes and when the planner asked for it, does what the planner
// says, and reads the progress of those that run. Its threads: one a kind of object that is watched,
// `workers`, one for the lease, one for the progress.
class Controller {
 public:
  // All outlive it. `client` is stopped by Stop; the lease has a client of its own, so that its renewal never
  // waits for a turn.
  Controller(kube::Client& client, kube::Client& lease_client, telemetry::OperatorMetrics& metrics,
             ControllerOptions options);
  ~Controller();  // stops
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  void Start();
  // Ends all threads and gives the lease back.
  void Stop();

  bool synced() const { return world_.synced(); }
  // The lease was held and is lost: another may act, and this process had better end.
  bool deposed() const { return deposed_; }
  std::map<std::string, int> JobsByPhase() const { return world_.JobsByPhase(); }
  JobList FindJobs(const JobQuery& query) const { return world_.Find(query); }

 private:
  // What is remembered of a job beside the API's objects; all of it can be lost.
  struct Notes {
    kube::ObjectName name;
    std::string pod_uid;  // of replica 0 while it runs; empty: nobody to ask
    std::string url;
    std::string steps_url;  // of the pod whose steps are the job's, where that is another; empty: it is not
    std::chrono::steady_clock::time_point next_poll{};
    int silent = 0;  // polls without progress in the answer, one after another
    std::optional<AgentReport> report;
    std::optional<Time> last_progress_write;
    std::optional<Blocked> blocked;
    Time try_again{};
    std::string refused;
  };

  struct KnownManifest {
    std::string uid;
    int64_t generation = 0;
    std::shared_ptr<const Manifest> manifest;
  };

  void Work();
  void Lead();
  void Poll();
  bool acts() const;
  // The result for the metrics.
  std::string_view Reconcile(const kube::ObjectName& name);
  // What the job's spec says, read once for the few looks that follow one another when something happens.
  std::shared_ptr<const Manifest> ManifestOf(const ObservedJob& job);
  // Takes from the notes what the planner has to know, and puts there whom to ask for progress.
  void Note(Observed& observed, const Manifest& manifest);
  std::string_view Fail(const Observed& observed, const Executor::Outcome& outcome);

  kube::Client& client_;
  kube::Client& lease_client_;
  telemetry::OperatorMetrics& metrics_;
  const ControllerOptions options_;
  WorkQueue queue_;
  World world_;
  Executor executor_;
  kube::RateLimit progress_writes_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopped_ = false;                // guarded by mutex_
  std::map<std::string, Notes> notes_;  // by uid; guarded by mutex_
  std::vector<KnownManifest> known_;    // each at its uid's hash; guarded by mutex_
  std::atomic<int64_t> acts_until_{0};  // steady clock, nanoseconds
  std::atomic<bool> deposed_ = false;
  std::vector<std::unique_ptr<kube::FollowSink>> sinks_;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::op
