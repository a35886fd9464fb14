#include "launcher/operator/controller.h"

#include <limits>
#include <optional>
#include <utility>

#include "common/log.h"
#include "launcher/http/client.h"
#include "launcher/kube/follow.h"
#include "launcher/kube/lease.h"
#include "launcher/operator/names.h"

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
constexpr seconds kNameTakenFor{25};

Time Now() { return std::chrono::floor<seconds>(std::chrono::system_clock::now()); }

std::string UrlOf(const std::string& address, int port) {
  const std::string host = address.find(':') == std::string::npos ? address : "[" + address + "]";
  return "http://" + host + ":" + std::to_string(port) + "/status";
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
      executor_(client, world_, options_.children) {}

Controller::~Controller() { Stop(); }

void Controller::Start() {
  if (!options_.leader_election) acts_until_ = std::numeric_limits<int64_t>::max();
  metrics_.Leads(!options_.leader_election);
  const auto follow = [this](const kube::Resource& resource, std::unique_ptr<kube::FollowSink> sink,
                             const std::string& selector) {
    sinks_.push_back(std::move(sink));
    threads_.emplace_back([this, resource, &sink = *sinks_.back(), selector] {
      kube::Follow(client_, resource,
                   {.space = options_.space, .label_selector = selector, .relist = std::chrono::minutes(30)},
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
  const Manifest manifest = ReadJobManifest(observed->job, options_.children);
  Note(*observed, manifest);
  const Time now = Now();
  Plan plan = MakePlan(*observed, manifest, options_.settings, now);
  for (const Action& action : plan.actions) {
    if (!acts()) return "requeue";
    const Executor::Outcome outcome = executor_.Do(*observed, manifest, action);
    if (outcome.kind != Executor::Outcome::Kind::kDone) return Fail(*observed, outcome);
  }
  if (plan.status) {
    const JobStatus& old = observed->job.status;
    const Executor::Outcome outcome = executor_.WriteStatus(observed->job, *plan.status);
    if (outcome.kind != Executor::Outcome::Kind::kDone) return Fail(*observed, outcome);
    if (plan.status->progress != old.progress) {
      const std::lock_guard lock(mutex_);
      notes_[observed->job.uid].last_progress_write = now;
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
  if (outcome.kind == Kind::kTaken || outcome.kind == Kind::kRefused) {
    {
      const std::lock_guard lock(mutex_);
      Notes& notes = notes_[observed.job.uid];
      if (outcome.kind == Kind::kTaken) notes.name_taken = outcome.message;
      if (outcome.kind == Kind::kRefused) notes.refused = outcome.message;
      notes.look_for_name_again = Now() + kNameTakenFor;
    }
    queue_.AddAfterFailure(name);
    return "requeue";
  }
  if (!client_.stopped()) log::Warning(name.ToString() + ": " + outcome.message);
  queue_.AddAfterFailure(name);
  return "error";
}

void Controller::Note(Observed& observed, const Manifest& manifest) {
  const ChildPod* leader = nullptr;
  for (const ChildPod& pod : observed.pods) {
    if (pod.index == 0 && pod.attempt == observed.job.status.attempt && pod.phase == PodPhase::kRunning &&
        !pod.delete_by && !pod.address.empty()) {
      leader = &pod;
    }
  }
  const std::lock_guard lock(mutex_);
  Notes& notes = notes_[observed.job.uid];
  notes.name = {observed.job.space, observed.job.name};
  const bool asks = leader != nullptr && manifest.job && !observed.job.status.finished();
  const std::string pod_uid = asks ? leader->uid : "";
  if (notes.pod_uid != pod_uid) {
    notes.pod_uid = pod_uid;
    notes.url = asks ? UrlOf(leader->address, HttpPort(*manifest.job)) : "";
    notes.next_poll = Steady::now() + kFirstPoll;
  }
  observed.report = notes.report;
  observed.last_progress_write = notes.last_progress_write;
  observed.refused = notes.refused;
  if (notes.look_for_name_again <= Now()) notes.name_taken.clear();
  observed.name_taken = notes.name_taken;
}

void Controller::Poll() {
  struct Target {
    std::string uid;
    std::string pod_uid;
    std::string url;
  };
  while (client_.Sleep(kPollTick)) {
    if (!acts()) continue;
    std::vector<Target> targets;
    {
      const std::lock_guard lock(mutex_);
      const auto now = Steady::now();
      for (auto& [uid, notes] : notes_) {
        if (notes.pod_uid.empty() || notes.next_poll > now) continue;
        notes.next_poll = now + kPollInterval;
        targets.push_back({uid, notes.pod_uid, notes.url});
        if (targets.size() == kPollsPerTick) break;
      }
    }
    for (const Target& target : targets) {
      const auto answer = http::Get(target.url, Steady::now() + kPollDeadline, kMaxReport);
      if (!answer.ok() || answer->status != 200) continue;  // it may still start, or come back
      std::optional<AgentReport> report = ReadAgentReport(answer->body);
      if (!report) continue;
      report->pod_uid = target.pod_uid;
      kube::ObjectName name;
      {
        const std::lock_guard lock(mutex_);
        const auto found = notes_.find(target.uid);
        if (found == notes_.end()) continue;
        found->second.report = std::move(report);
        name = found->second.name;
      }
      queue_.Add(name);
    }
  }
}

}  // namespace lockstep::op
