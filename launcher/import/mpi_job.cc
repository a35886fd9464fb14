#include <utility>

#include "launcher/import/kinds.h"
#include "launcher/import/kubeflow.h"
#include "launcher/import/mpi.h"

namespace lockstep::importer {

namespace {

// Of v1 directly under spec, of v2beta1 in runPolicy.
void ReadOwnFields(const Field& spec, spec::TrainingJob& job) {
  ReadCleanPodPolicy(spec["cleanPodPolicy"], job.run_policy);
  if (const Field path = spec["sshAuthMountPath"]; path.present()) {
    path.Explain("not needed: Lockstep's agents know one another by a token, no ssh is used");
  }
  if (const Field creation = spec["launcherCreationPolicy"]; creation.present()) {
    creation.Explain("not needed: the processes start when all replicas are there");
  }
  if (const Field implementation = spec["mpiImplementation"]; implementation.present()) {
    implementation.Explain("not needed: Lockstep starts the processes itself");
  }
}

}  // namespace

std::optional<spec::TrainingJob> ReadMpiJob(const Field& object) {
  spec::TrainingJob job;
  ReadObject(object, job);
  const Field spec = object["spec"];
  const Field specs = spec["mpiReplicaSpecs"];
  const std::string main = spec["mainContainer"].Text().value_or("");
  RestartPolicies restarts;
  std::optional<Draft> launcher = ReadReplicas(specs["Launcher"], "chief", main, restarts);
  std::optional<Draft> workers;
  if (specs["Worker"].present()) workers = ReadReplicas(specs["Worker"], "worker", "", restarts);
  if (!launcher || !specs["Launcher"].present()) {
    specs.LeaveOut("has no Launcher, whose command is what would run; left out");
    return std::nullopt;
  }
  const int slots = ReadCount(spec["slotsPerWorker"], 1).value_or(1);
  const bool launcher_works = spec["runLauncherAsWorker"].Boolean().value_or(false);
  if (!workers) {
    // mpirun with the launcher's own slots.
    workers = launcher;
    workers->role = "worker";
    workers->pod.entrypoint.clear();
    workers->pod.arguments.clear();
  } else if (launcher_works) {
    spec["runLauncherAsWorker"].Say("one replica more");
    ++workers->replicas;
  }
  const spec::Framework framework = FoldLauncher(*launcher, slots, *workers);
  std::vector<Draft> drafts{std::move(*workers)};
  ReadOwnFields(spec, job);
  const spec::CleanPodPolicy own = job.run_policy.clean_pod_policy;
  ReadRunPolicy(spec["runPolicy"], restarts, drafts, job);
  if (!spec["runPolicy"]["cleanPodPolicy"].present()) job.run_policy.clean_pod_policy = own;
  SetRoles(std::move(drafts), framework, job);
  return job;
}

}  // namespace lockstep::importer
