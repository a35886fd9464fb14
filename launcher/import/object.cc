#include <algorithm>
#include <array>
#include <utility>

#include "launcher/import/job_name.h"
#include "launcher/import/translation.h"

// What every object of Kubernetes has: its name and labels.
namespace lockstep::importer {

namespace {

// What Kubernetes wrote into an object, or those who look after it.
bool IsWrittenByCluster(std::string_view field) {
  constexpr std::array<std::string_view, 10> kFields = {"creationTimestamp", "deletionGracePeriodSeconds",
                                                        "deletionTimestamp", "finalizers",
                                                        "generation",        "managedFields",
                                                        "ownerReferences",   "resourceVersion",
                                                        "selfLink",          "uid"};
  return std::find(kFields.begin(), kFields.end(), field) != kFields.end();
}

// Of labels and annotations that only those who made up the other kind read.
bool IsTheirs(std::string_view key) {
  const std::string_view domain = key.substr(0, key.find('/'));
  if (domain.size() == key.size()) return false;
  constexpr std::array<std::string_view, 4> kDomains = {"jobset.sigs.k8s.io", "jobset.x-k8s.io",
                                                        "kubeflow.org", "volcano.sh"};
  return key == "kubectl.kubernetes.io/last-applied-configuration" ||
         std::any_of(kDomains.begin(), kDomains.end(),
                     [&](std::string_view theirs) { return domain.ends_with(theirs); });
}

void ReadName(const Field& metadata, spec::TrainingJob& job) {
  Field from = metadata["name"];
  std::string name = from.Text().value_or("");
  if (name.empty()) {
    from = metadata["generateName"];
    name = from.Text().value_or("");
    while (name.ends_with('-')) name.pop_back();
    if (!name.empty()) from.Say("metadata.name: " + name + ", since a TrainingJob is named by who writes it");
  }
  const std::string fit = JobName(name);
  if (fit != name) {
    (from.present() ? from : metadata)
        .Say("becomes " + fit +
             ": a name has at most 40 small letters, digits and -, a letter "
             "first");
  }
  job.name = fit;
}

void ReadMap(const Field& map, std::map<std::string, std::string>& to) {
  for (const auto& [key, field] : map.Entries()) {
    if (IsTheirs(key)) {
      field.LeaveOut("means something to others only; left out");
    } else if (std::optional<std::string> text = field.Text()) {
      to[key] = std::move(*text);
    }
  }
}

}  // namespace

void ReadObject(const Field& object, spec::TrainingJob& job) {
  object["apiVersion"].Text();
  object["kind"].Text();
  if (const Field status = object["status"]; status.present())
    status.Explain("written by the cluster; not needed");
  const Field metadata = object["metadata"];
  ReadName(metadata, job);
  if (std::optional<std::string> space = metadata["namespace"].Text()) job.namespace_name = *space;
  ReadMap(metadata["labels"], job.labels);
  ReadMap(metadata["annotations"], job.annotations);
  for (const auto& [key, field] : metadata.Entries()) {
    if (IsWrittenByCluster(key) && field.present()) field.Explain("written by the cluster; not needed");
  }
}

std::optional<int> ReadCount(const Field& field, int least) {
  const std::optional<int64_t> number = field.Integer();
  if (!number) return std::nullopt;
  constexpr int64_t kMost = 1'000'000'000;
  if (*number >= least && *number <= kMost) return static_cast<int>(*number);
  field.LeaveOut("is not from " + std::to_string(least) + " to " + std::to_string(kMost) + "; left out");
  return std::nullopt;
}

}  // namespace lockstep::importer
