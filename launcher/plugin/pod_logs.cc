#include "launcher/plugin/pod_logs.h"

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "launcher/operator/names.h"
#include "launcher/plugin/log_line.h"
#include "launcher/plugin/log_merger.h"
#include "launcher/plugin/status_query.h"

namespace lockstep::plugin {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{300};  // for pods that lag, when following
constexpr milliseconds kLook{2000};     // between looks at what pods there are
constexpr milliseconds kRetry{1000};
constexpr milliseconds kSilence{30'000};  // of a log that is not followed
constexpr int kTries = 3;                 // of a log that is not followed

std::string NameOf(const PodView& pod) { return pod.role + "-" + std::to_string(pod.pod.index); }

// Credentials that have run out stay so: this process has no others.
bool MayPass(const kube::Error& error) {
  return error.retryable() && error.reason != kube::Reason::kUnauthorized;
}

// Reads the logs of a job's pods into a merger, a thread each.
class Readers {
 public:
  Readers(kube::Client& client, const LogOptions& options, const LogSinks& sinks, LogMerger& merger)
      : client_(client), options_(options), sinks_(sinks), merger_(merger) {}

  // Starts with the pods that were not started with before. kResourceExhausted: there are too many.
  Status Start(const std::vector<PodView>& pods) {
    if (known_.empty()) {
      oldest_ = 0;
      for (const PodView& pod : pods) oldest_ = std::max(oldest_, pod.pod.attempt);
    }
    std::vector<const PodView*> fresh;
    for (const PodView& pod : pods) {
      if (pod.pod.attempt < oldest_ || known_.contains(pod.pod.uid)) continue;
      if (options_.replica && *options_.replica != pod.pod.index) continue;
      // Its log cannot be had yet, and may never be.
      if (pod.pod.phase == op::PodPhase::kPending) continue;
      fresh.push_back(&pod);
    }
    if (fresh.size() + running_ > options_.most_pods) {
      return ResourceExhausted(std::to_string(fresh.size() + running_) + " pods are more than the " +
                               std::to_string(options_.most_pods) +
                               " that are read at once: choose one with --replica");
    }
    for (const PodView* pod : fresh) {
      known_.insert(pod->pod.uid);
      ++running_;
      const int source = merger_.Open(NameOf(*pod));
      threads_.emplace_back([this, source, name = pod->pod.name, uid = pod->pod.uid] {
        Read(source, name, uid);
        merger_.Close(source);
        --running_;
      });
    }
    return {};
  }

  // Whether all that was started with has been read.
  bool idle() const { return running_ == 0; }
  bool started() const { return !known_.empty(); }

 private:
  std::string Path(const std::string& pod, std::optional<int64_t> since) const {
    std::string path = kube::PathOf(kube::kPods, {.space = options_.name.space, .name = pod}, "log");
    path += "?container=" + std::string(op::kContainer) + "&timestamps=true";
    if (options_.follow) path += "&follow=true";
    if (since) {
      path += "&sinceTime=" + SinceTime(*since);  // its colons are allowed in a query
    } else if (options_.tail) {
      path += "&tailLines=" + std::to_string(*options_.tail);
    }
    return path;
  }

  void Read(int source, const std::string& pod, const std::string& uid) {
    std::optional<int64_t> last;
    int tries = 0;
    while (true) {
      // The server's sinceTime is in whole seconds: what of that second was shown before is left out.
      const std::optional<int64_t> shown = last;
      LineSplitter splitter;
      const auto take = [&](const std::string& text) {
        LogLine line = ParseLogLine(text, last.value_or(0));
        if (shown && line.time <= *shown) return true;
        last = line.time;
        const auto rank = RankOf(line.text);
        if (options_.rank && rank != options_.rank) return true;
        return merger_.Add(source, std::move(line));
      };
      const auto end =
          client_.Stream(Path(pod, last), {.silence = options_.follow ? milliseconds(0) : kSilence},
                         [&](std::string_view bytes) { return splitter.Add(bytes, take); });
      splitter.Flush(take);
      if (client_.stopped() || (end.ok() && !*end)) return;
      if (end.ok() && (!options_.follow || Ended(pod, uid))) return;
      if (!end.ok()) {
        const kube::Reason reason = end.error().reason;
        // A container that is about to start is a BadRequest.
        const bool later = options_.follow && reason == kube::Reason::kBadRequest && !Ended(pod, uid);
        if (!later && (!MayPass(end.error()) || (!options_.follow && ++tries == kTries))) {
          if (!options_.follow || reason != kube::Reason::kNotFound) sinks_.complain(end.error().message);
          return;
        }
      }
      if (!client_.Sleep(kRetry)) return;
    }
  }

  // Whether nothing more comes from this pod.
  bool Ended(const std::string& name, const std::string& uid) {
    const auto object = client_.Get(kube::kPods, {.space = options_.name.space, .name = name});
    if (!object.ok()) return object.failed_with(kube::Reason::kNotFound);
    const PodView pod = ReadPod(*object);
    return pod.pod.uid != uid || pod.pod.ended();
  }

  kube::Client& client_;
  const LogOptions& options_;
  const LogSinks& sinks_;
  LogMerger& merger_;
  int oldest_ = 0;  // the attempt that was the newest at first
  std::set<std::string> known_;
  std::atomic<size_t> running_ = 0;
  std::vector<std::jthread> threads_;  // last, so that they end first
};

// Looks for pods that come, until the job is over and all is read. Returns why it could not go on.
Status LookOut(kube::Client& client, const LogOptions& options, Readers& readers, const std::string& uid) {
  while (client.Sleep(kLook)) {
    const auto object = client.Get(kube::kTrainingJobs, options.name);
    if (!object.ok() && !object.failed_with(kube::Reason::kNotFound)) {
      if (MayPass(object.error())) continue;
      return object.error().ToStatus();
    }
    const op::ObservedJob job = object.ok() ? op::ReadTrainingJob(*object) : op::ObservedJob();
    const bool over = job.uid != uid || job.status.finished();  // deleted, or made again, or done
    const auto pods = PodsOf(client, options.name.space, uid);
    if (!pods.ok()) continue;
    const bool were_idle = readers.idle();
    if (const Status started = readers.Start(*pods); !started.ok()) return started;
    if (over && were_idle && readers.idle()) return {};
  }
  return {};
}

}  // namespace

Status ShowLogs(kube::Client& client, const LogOptions& options, const LogSinks& sinks) {
  const auto object = client.Get(kube::kTrainingJobs, options.name);
  if (!object.ok()) return object.error().ToStatus();
  const std::string uid = op::ReadTrainingJob(*object).uid;
  const auto pods = PodsOf(client, options.name.space, uid);
  if (!pods.ok()) return pods.error().ToStatus();

  LogMerger merger(options.follow ? std::optional(kPatience) : std::nullopt);
  Status status;
  {
    Readers readers(client, options, sinks, merger);
    if (const Status started = readers.Start(*pods); !started.ok()) return started;
    std::jthread look_out;
    if (options.follow) {
      look_out = std::jthread([&] {
        status = LookOut(client, options, readers, uid);
        status.ok() ? merger.Finish() : merger.Stop();
      });
    } else {
      if (!readers.started()) sinks.complain("no pod of " + options.name.name + " has started yet");
      merger.Finish();
    }
    while (const auto line = merger.Next()) {
      std::string text;
      if (options.timestamps) text += SinceTime(line->line.time) + " ";
      if (!RankOf(line->line.text)) text += "[" + line->source + "] ";
      if (!sinks.write(text + line->line.text + "\n")) break;
    }
    merger.Stop();
    client.Stop();
  }
  return status;
}

}  // namespace lockstep::plugin
