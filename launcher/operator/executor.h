#pragma once

#include <string>

#include "launcher/kube/client.h"
#include "launcher/operator/children.h"
#include "launcher/operator/planner.h"
#include "launcher/operator/world.h"

namespace lockstep::op {

// Does what a plan says, one write an action. Every write may be done twice, and by two operators at once:
// names are the same each time, so that the API server refuses the second; what is changed or deleted is
// named by its uid. Safe from every thread.
class Executor {
 public:
  struct Outcome {
    enum class Kind {
      kDone,
      kAgain,    // later: the API server or the object's state was in the way
      kBlocked,  // until somebody changes something; `message` and `reason` are of a Blocked
      kGone,     // the namespace is being deleted, and the job with it
      kMissing,  // there is no such kind of object in the cluster, or no such namespace
      kRefused,  // what we would make is invalid
    };
    Kind kind = Kind::kDone;
    std::string message;
    std::string reason = {};  // of kBlocked
  };

  // Both outlive this.
  Executor(kube::Client& client, World& world, ChildOptions options)
      : client_(client), world_(world), options_(std::move(options)) {}

  Outcome Do(const Observed& observed, const Manifest& manifest, const Action& action);
  // Of the version that was observed: kAgain when the job has changed since.
  Outcome WriteStatus(const ObservedJob& job, const JobStatus& status);
  // For people; an Event that cannot be written is only logged.
  void Tell(const ObservedJob& job, const PlannedEvent& event);

 private:
  Outcome Make(const ObservedJob& job, const kube::Resource& resource, const kube::Json& object);
  // Of this job only; one that is not there is no failure.
  Outcome DeleteOwned(const ObservedJob& job, const kube::Resource& resource, const std::string& name);
  Outcome Delete(const kube::Resource& resource, const kube::ObjectName& name, const std::string& uid);

  kube::Client& client_;
  World& world_;
  const ChildOptions options_;
};

}  // namespace lockstep::op
