// operator_load KUBECONFIG TEMPLATE COUNT FIRST CONNECTIONS [CHILD]: what an operator is measured with.
//
// Creates COUNT objects like the one in TEMPLATE (JSON), named load-FIRST and so on, over CONNECTIONS
// connections as fast as the API server takes them, and waits, where CHILD (Job or Pod) is given, until each
// has one that it owns. Prints one JSON object: when the first was sent (Unix time), the seconds that the
// creating took, and for each object the seconds from sending it to the news of its first child.

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <fstream>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "launcher/kube/client.h"
#include "launcher/kube/config.h"

namespace lockstep {

namespace {

using kube::Clock;
using kube::Json;

constexpr char kSpace[] = "default";
constexpr std::string_view kPrefix = "load-";
constexpr std::chrono::seconds kLongest{900};

constexpr kube::Resource kKnown[] = {
    kube::kTrainingJobs,
    kube::kJobs,
    kube::kPods,
    {"jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"},
    {"kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"},
};

const kube::Resource* ResourceOf(const std::string& kind) {
  for (const kube::Resource& known : kKnown) {
    if (known.kind == kind) return &known;
  }
  return nullptr;
}

[[noreturn]] void Fail(const std::string& message) {
  std::cerr << "operator_load: " << message << std::endl;
  std::_Exit(1);  // the threads are wherever they are
}

// What is known of one object.
struct Sample {
  Clock::time_point sent;
  Clock::time_point child;  // zero: not yet
};

class Load {
 public:
  Load(kube::Client& client, Json object, int count, int first)
      : client_(client), object_(std::move(object)), first_(first), samples_(static_cast<size_t>(count)) {}

  void Create(int connections) {
    const kube::Resource* resource = ResourceOf(object_["kind"].get<std::string>());
    if (resource == nullptr) Fail("a kind that is not known");
    std::vector<std::thread> threads;
    for (int i = 0; i < connections; ++i) threads.emplace_back([this, resource] { CreateSome(*resource); });
    for (std::thread& thread : threads) thread.join();
  }

  // Until every object has a child.
  void WatchChildren(const kube::Resource& kind, std::string version) {
    size_t missing = samples_.size();
    const auto take = [&](kube::EventType type, Json& child) {
      if (type != kube::EventType::kAdded) return true;
      const int index = OwnerOf(child);
      if (index < 0) return true;
      const std::lock_guard lock(mutex_);
      Sample& sample = samples_[static_cast<size_t>(index)];
      if (sample.child == Clock::time_point()) {
        sample.child = Clock::now();
        missing -= 1;
      }
      return missing > 0;
    };
    while (missing > 0) {
      auto answer =
          client_.Watch(kind, {.space = kSpace, .resource_version = version, .duration = kLongest}, take);
      if (!answer.ok()) Fail(answer.error().message);
      version = *answer;
    }
  }

  Json Report(double unix_time, Clock::time_point began, Clock::time_point created) const {
    Json report = {{"began", unix_time},
                   {"creating", std::chrono::duration<double>(created - began).count()},
                   {"seconds", Json::array()}};
    for (const Sample& sample : samples_) {
      if (sample.child == Clock::time_point()) continue;
      report["seconds"].push_back(std::chrono::duration<double>(sample.child - sample.sent).count());
    }
    return report;
  }

 private:
  void CreateSome(const kube::Resource& resource) {
    Json object = object_;
    for (size_t i = next_++; i < samples_.size(); i = next_++) {
      object["metadata"]["name"] = std::string(kPrefix) + std::to_string(first_ + static_cast<int>(i));
      {
        const std::lock_guard lock(mutex_);
        samples_[i].sent = Clock::now();
      }
      const auto answer = client_.Create(resource, kSpace, object);
      if (!answer.ok()) Fail(answer.error().message);
    }
  }

  // The index of the object that `child` belongs to; -1: to none of this run.
  int OwnerOf(const Json& child) const {
    const Json& meta = child["metadata"];
    const auto owners = meta.find("ownerReferences");
    if (owners == meta.end() || owners->empty()) return -1;
    const std::string name = (*owners)[0]["name"].get<std::string>();
    if (!name.starts_with(kPrefix)) return -1;
    int number = -1;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), number);
    const int index = number - first_;
    return index >= 0 && index < static_cast<int>(samples_.size()) ? index : -1;
  }

  kube::Client& client_;
  const Json object_;
  const int first_;
  std::atomic<size_t> next_{0};
  std::mutex mutex_;
  std::vector<Sample> samples_;
};

int Run(const std::vector<std::string>& words) {
  if (words.size() != 5 && words.size() != 6) Fail("KUBECONFIG TEMPLATE COUNT FIRST CONNECTIONS [CHILD]");
  const auto config = kube::LoadKubeconfig(words[0]);
  if (!config.ok()) Fail(config.status().ToString());
  const auto client = kube::Client::Make(*config, {.requests_per_second = 0, .user_agent = "operator-load"});
  if (!client.ok()) Fail(client.status().ToString());
  Json object = Json::parse(std::ifstream(words[1]), nullptr, false);
  if (!object.is_object()) Fail(words[1] + " is no JSON object");
  Load load(**client, std::move(object), std::stoi(words[2]), std::stoi(words[3]));

  std::thread watcher;
  if (words.size() == 6) {
    const kube::Resource* child = ResourceOf(words[5]);
    if (child == nullptr) Fail("a kind of child that is not known");
    // A list is too long when there are many: any one of another kind has the version to watch from as well.
    auto version = (*client)->List(kube::kNamespaces, {}, [](Json&) {});
    if (!version.ok()) Fail(version.error().message);
    watcher = std::thread([&load, child, version = *version] { load.WatchChildren(*child, version); });
  }
  const auto began = Clock::now();
  const double unix_time =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  load.Create(std::stoi(words[4]));
  const auto created = Clock::now();
  if (watcher.joinable()) watcher.join();
  std::cout << load.Report(unix_time, began, created).dump() << std::endl;
  return 0;
}

}  // namespace

}  // namespace lockstep

int main(int argc, char** argv) {
  ::alarm(1800);  // whatever happens
  return lockstep::Run({argv + 1, argv + argc});
}
