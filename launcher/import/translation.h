#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/import/pod.h"
#include "launcher/import/source.h"
#include "launcher/import/torchrun.h"
#include "launcher/spec/training_job.h"

// What the kinds have in common: object.cc an object's name and labels, start.cc what starts a pod's program,
// roles.cc the roles.
namespace lockstep::importer {

// A role on its way into a TrainingJob.
struct Draft {
  std::string role;  // worker, chief, ps or evaluator
  int replicas = 1;
  Pod pod;
  std::optional<int> processes = 1;  // of each replica; empty: one a device
  bool virtual_local_rank = false;   // torchrun's: each process sees its own device only
  std::optional<int> max_restarts;   // torchrun's
  Field where;                       // of the other's manifest
};

// apiVersion and kind are taken, and the status told; name, namespace, labels and annotations go to the job.
void ReadObject(const Field& object, spec::TrainingJob& job);

// `field`, if it is a whole number of at least `least` that fits; otherwise empty, and told.
std::optional<int> ReadCount(const Field& field, int least);

// The role that a group of pods plays by its name: of "ps", "parameter-server" ps, of "master", "driver",
// "leader", "chief" … chief, of "evaluator" evaluator, of anything else worker.
std::string_view RoleNamed(std::string_view name);

// By the names of image and command; None where they do not tell. What was found is said of the pod.
spec::Framework GuessFramework(const Pod& pod);

// What torchrun would have started in the pod; `asked`, if there is such a field, has the number of processes
// a replica (nproc_per_node's values), for a command that does not say it, `otherwise` is what it is without.
// Where the command is no torchrun, it is one process.
void StartAsTorchrunDoes(const std::optional<Field>& asked, const std::string& otherwise, Draft& draft);
// For all who do not go through torchrun: the pod's command as it is.
void StartAsIs(Draft& draft);
// "4", "auto", "gpu" or "cpu" as processes of a replica. Told at `where`.
void SetProcesses(const std::string& nproc_per_node, const Field& where, Draft& draft);

// The roles in their order, with programs of this framework. A chief is a worker where that makes no
// difference, and where there is no other. What cannot be a role is told.
void SetRoles(std::vector<Draft> drafts, spec::Framework framework, spec::TrainingJob& job);

}  // namespace lockstep::importer
