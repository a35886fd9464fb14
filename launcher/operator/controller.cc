#include "launcher/operator/controller.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "common/log.h"
#include "launcher/http/client.h"
#include "launcher/kube/follow.h"
#include "launcher/kube/lease.h"
#include "launcher/operator/names.h"
#include "launcher/spec/roles.h"

namespace lockstep::op {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Steady = std::chrono::steady_clock;

constexpr seconds kRenewal{4};
constexpr seconds kTry{
    2};  // of one that waits, so that a lease which is given back does not lie there for long
constexpr seconds kMargin{2};
constexpr milliseconds kPollTick{200};
// No more often a job, and not more jobs a second: each poll may be followed by a write of a status.
constexpr seconds kPollInterval{10};
constexpr seconds kFirstPoll{1};
constexpr size_t kPollsPerTick = 10;
constexpr milliseconds kPollDeadline{500};
constexpr size_t kMaxReport = 4 << 20;
constexpr seconds kBlockedFor{25};
constexpr size_t kKnownManifests = 256;
constexpr int kPage = 100;  // objects a page of a list: one of 500 is 30 MB once it is read

Time Now() { return std::chrono::floor<seconds>(std::chrono::system_clock::now()); }

std::string UrlOf(const std::string& address, int port) {
  const std::string host = address.find(':') == std::string::npos ? address : "[" + address + "]";
  return "http://" + host + ":" + std::to_string(port) + "/status";
}

// Empty: it may still start, or come back.
std::optional<AgentReport> Ask(const std::string& url) {
  const auto answer = http::Get(url, Steady::now() + kPollDeadline, kMaxReport);
  if (!answer.ok() || answer->status != 200) return {};
  return ReadAgentReport(answer->body);
}

}  // namespace

Controller::Controller(kube::Client& client, kube::Client& lease_client, telemetry::OperatorMetrics& metrics,
                       ControllerOptions options)
    : client_(client),
      lease_client_(lease_client),
      metrics_(metrics),
      options_(std::move(options)),
      world_([this](const kube::ObjectName& name) {
        if (!world_.synced()) return;  // all are added then
        metrics_.Queued();
        queue_.Add(name);
      }),
      executor_(client, world_, options_.children),
      progress_writes_(kProgressWritesPerSecond, kProgressWritesAtOnce, Steady::now()),
      known_(kKnownManifests) {}

Controller::~Controller() { Stop(); }

void Controller::Start() {
  if (!options_.leader_election) acts_until_ = std::numeric_limits<int64_t>::max();
  metrics_.Leads(!options_.leader_election);
  const auto follow = [this](const kube::Resource& resource, std::unique_ptr<kube::FollowSink> sink,
                             const std::string& selector) {
    sinks_.push_back(std::move(sink));
    threads_.emplace_back([this, resource, &sink = *sinks_.back(), selector] {
      kube::Follow(client_, resource,
                   {.space = options_.space,
                    .label_selector = selector,
                    .page = kPage,
                    .relist = std::chrono::minutes(30)},
                   sink);
    });
  };
  sinks_.reserve(4);
  follow(kube::kTrainingJobs, world_.JobSink(), "");
  follow(kube::kJobs, world_.ChildJobSink(), kJobUidLabel);
  follow(kube::kServices, world_.ServiceSink(), kJobUidLabel);
  follow(kube::kPods, world_.PodSink(), kJobUidLabel);
  if (options_.leader_election) threads_.emplace_back([this] { Lead(); });
  threads_.emplace_back([this] { Poll(); });
  for (int i = 0; i < options_.workers; ++i) threads_.emplace_back([this] { Work(); });
}

void Controller::Stop() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    stop_.notify_all();
  }
  queue_.ShutDown();
  client_.Stop();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool Controller::acts() const { return Steady::now().time_since_epoch().count() < acts_until_; }

void Controller::Lead() {
  kube::LeaseLock lock(&lease_client_,
                       {.name = {options_.lease_space, options_.lease}, .identity = options_.identity});
  bool led = false;
  while (true) {
    const auto view = lock.TryHold();
    if (!view.ok()) log::Warning("the lease: " + view.error().message);
    // A little less than others wait, for what is on its way.
    const auto until = lock.view().held_until - kMargin;
    acts_until_ = lock.view().held ? until.time_since_epoch().count() : 0;
    const bool leads = acts();
    if (leads && !led) log::Info("leads as " + options_.identity);
    metrics_.Leads(leads);
    if (led && !leads) {
      log::Error("the lease is lost" + (view.ok() ? " to " + view->holder : std::string()));
      deposed_ = true;
      return;
    }
    led = leads;
    std::unique_lock wait(mutex_);
    if (stop_.wait_for(wait, leads ? kRenewal : kTry, [this] { return stopped_; })) break;
  }
  acts_until_ = 0;
  if (const auto released = lock.Release(); !released.ok()) {
    log::Warning("the lease is not given back: " + released.error().message);
  }
}

void Controller::Work() {
  while (const auto turn = queue_.Get()) {
    metrics_.Taken(std::chrono::duration<double>(turn->waited).count());
    metrics_.QueueDepth(queue_.depth());
    const auto started = Steady::now();
    if (acts()) {
      const std::string_view result = Reconcile(turn->key);
      metrics_.Reconciled(result, std::chrono::duration<double>(Steady::now() - started).count());
    } else {
      queue_.AddAfter(turn->key, seconds(1));
    }
    queue_.Done(turn->key);
  }
}

std::string_view Controller::Reconcile(const kube::ObjectName& name) {
  std::optional<Observed> observed = world_.Observe(name);
  if (!observed) {
    queue_.Forget(name);
    const std::lock_guard lock(mutex_);
    std::erase_if(notes_, [&](const auto& note) { return note.second.name == name; });
    return "success";
  }
  const std::shared_ptr<const Manifest> known = ManifestOf(observed->job);
  const Manifest& manifest = *known;
  Note(*observed, manifest);
  const Time now = Now();
  Plan plan = MakePlan(*observed, manifest, options_.settings, now);
  bool created = false;
  for (const Action& action : plan.actions) {
    if (!acts()) return "requeue";
    const Executor::Outcome outcome = executor_.Do(*observed, manifest, action);
    if (outcome.kind != Executor::Outcome::Kind::kDone) return Fail(*observed, outcome);
    created = created || std::holds_alternative<CreateJob>(action);
  }
  // The news of what was made brings the job back here, behind those that wait to be made, and the plan of
  // then has all that there is to say: one status is written and not two.
  if (created) {
    queue_.Forget(name);
    return "success";
  }
  // One time for both: that by which the turn is due must not be before that at which it is asked for.
  const Steady::time_point turn = Steady::now();
  if (plan.status && plan.progress_only && !progress_writes_.Reserve(turn, turn)) {
    plan.status.reset();
    plan.look_again = std::min(plan.look_again.value_or(seconds(1)), seconds(1));
  }
  if (plan.status) {
    const JobStatus& old = observed->job.status;
    const Executor::Outcome outcome = executor_.WriteStatus(observed->job, *plan.status);
    if (outcome.kind != Executor::Outcome::Kind::kDone) return Fail(*observed, outcome);
    if (plan.status->progress != old.progress) {
      const std::lock_guard lock(mutex_);
      const auto found = notes_.find(observed->job.uid);
      if (found != notes_.end()) found->second.last_progress_write = now;
    }
    if (old.Find(kRunning) != nullptr && plan.status->phase == Phase::kRunning && plan.status->attempt == 0 &&
        old.Find(kRunning)->reason == "PodsStarting") {
      metrics_.Launched(static_cast<double>((now - observed->job.created).count()));
    }
  }
  for (const PlannedEvent& event : plan.events) executor_.Tell(observed->job, event);
  queue_.Forget(name);
  if (!plan.look_again) return "success";
  queue_.AddAfter(name, *plan.look_again);
  return "requeue_after";
}

std::string_view Controller::Fail(const Observed& observed, const Executor::Outcome& outcome) {
  using Kind = Executor::Outcome::Kind;
  const kube::ObjectName name{observed.job.space, observed.job.name};
  metrics_.Retried();
  if (outcome.kind == Kind::kGone || outcome.kind == Kind::kMissing) {
    queue_.AddAfter(name, kBlockedFor);
    return "requeue_after";
  }
  if (outcome.kind == Kind::kBlocked || outcome.kind == Kind::kRefused) {
    {
      const std::lock_guard lock(mutex_);
      Notes& notes = notes_[observed.job.uid];
      notes.name = name;
      if (outcome.kind == Kind::kBlocked) notes.blocked = Blocked{outcome.reason, outcome.message};
      if (outcome.kind == Kind::kRefused) notes.refused = outcome.message;
      notes.try_again = Now() + kBlockedFor;
    }
    queue_.AddAfterFailure(name);
    return "requeue";
  }
  if (!client_.stopped()) log::Warning(name.ToString() + ": " + outcome.message);
  queue_.AddAfterFailure(name);
  return "error";
}

std::shared_ptr<const Manifest> Controller::ManifestOf(const ObservedJob& job) {
  KnownManifest& slot = known_[std::hash<std::string>()(job.uid) % known_.size()];
  {
    const std::lock_guard lock(mutex_);
    if (slot.uid == job.uid && slot.generation == job.generation) return slot.manifest;
  }
  auto manifest = std::make_shared<const Manifest>(ReadJobManifest(job, options_.children));
  const std::lock_guard lock(mutex_);
  slot = {job.uid, job.generation, manifest};
  return manifest;
}

void Controller::Note(Observed& observed, const Manifest& manifest) {
  const ChildPod* leader = nullptr;
  const ChildPod* steps = nullptr;
  const auto first = [&](const std::string& role) {
    const ChildPod* found = nullptr;
    for (const ChildPod& pod : observed.pods) {
      if (pod.role == role && pod.index == 0 && pod.attempt == observed.job.status.attempt &&
          pod.phase == PodPhase::kRunning && !pod.delete_by && !pod.address.empty()) {
        found = &pod;
      }
    }
    return found;
  };
  if (manifest.job) {
    leader = first(manifest.job->roles.front().name);
    for (const spec::Role& role : manifest.job->roles) {
      if (steps == nullptr && spec::EndsJob(*manifest.job, role.name)) steps = first(role.name);
    }
  }
  const bool asks = leader != nullptr && !observed.job.status.finished();
  const std::lock_guard lock(mutex_);
  if (!asks && notes_.count(observed.job.uid) == 0) return;  // of most jobs there is nothing to remember
  Notes& notes = notes_[observed.job.uid];
  notes.name = {observed.job.space, observed.job.name};
  const std::string pod_uid = asks ? leader->uid : "";
  if (notes.pod_uid != pod_uid) {
    notes.pod_uid = pod_uid;
    notes.url = asks ? UrlOf(leader->address, HttpPort(*manifest.job)) : "";
    notes.next_poll = Steady::now() + kFirstPoll;
    notes.silent = 0;
  }
  const bool another = asks && steps != nullptr && steps != leader;
  notes.steps_url = another ? UrlOf(steps->address, HttpPort(*manifest.job)) : "";
  observed.report = notes.report;
  observed.last_progress_write = notes.last_progress_write;
  observed.refused = notes.refused;
  if (notes.try_again <= Now()) notes.blocked.reset();
  observed.blocked = notes.blocked;
}

void Controller::Poll() {
  struct Target {
    std::string uid;
    std::string pod_uid;
    std::string url;
    std::string steps_url;
  };
  while (client_.Sleep(kPollTick)) {
    if (!acts()) continue;
    std::vector<Target> targets;
    {
      const std::lock_guard lock(mutex_);
      const auto now = Steady::now();
      for (auto& [uid, notes] : notes_) {
        if (notes.pod_uid.empty() || notes.next_poll > now) continue;
        // One that has nothing to say yet is asked again soon: how a job begins is looked at most.
        notes.next_poll = now + std::min(kPollInterval, kFirstPoll * (1 << std::min(notes.silent++, 4)));
        targets.push_back({uid, notes.pod_uid, notes.url, notes.steps_url});
        if (targets.size() == kPollsPerTick) break;
      }
    }
    for (const Target& target : targets) {
      std::optional<AgentReport> report = Ask(target.url);
      if (!report) continue;
      if (!target.steps_url.empty()) {
        if (std::optional<AgentReport> told = Ask(target.steps_url))
          report->progress = std::move(told->progress);
      }
      report->pod_uid = target.pod_uid;
      kube::ObjectName name;
      {
        const std::lock_guard lock(mutex_);
        const auto found = notes_.find(target.uid);
        if (found == notes_.end()) continue;
        Notes& notes = found->second;
        if (report->progress) {
          notes.silent = 0;
          notes.next_poll = Steady::now() + kPollInterval;
        }
        notes.report = std::move(report);
        name = notes.name;
      }
      queue_.Add(name);
    }
  }
}

}  // namespace lockstep::op
