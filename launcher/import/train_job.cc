#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "launcher/import/command_line.h"
#include "launcher/import/job_set.h"
#include "launcher/import/kinds.h"
#include "launcher/import/kubeflow.h"
#include "launcher/import/mpi.h"
#include "launcher/spec/enums.h"
#include "launcher/spec/quote.h"

namespace lockstep::importer {

namespace {

constexpr char kStepLabel[] = "trainer.kubeflow.org/trainjob-ancestor-step";
constexpr char kFrameworkLabel[] = "trainer.kubeflow.org/framework";

bool IsTrainer(std::string_view name) { return name == "node" || name == "trainer"; }

// What a runtime is for, by its label or, where it is not in the files, by its name.
std::optional<spec::Framework> FrameworkNamed(std::string_view text) {
  using enum spec::Framework;
  static constexpr std::array<std::pair<std::string_view, spec::Framework>, 6> kNamed = {
      {{"torch", kPyTorch},
       {"deepspeed", kPyTorch},
       {"jax", kJax},
       {"tensorflow", kTensorFlow},
       {"horovod", kHorovod},
       {"mpi", kMpi}}};
  for (const auto& [word, framework] : kNamed) {
    if (text.find(word) != std::string_view::npos) return framework;
  }
  return std::nullopt;
}

const Field* FindRuntime(const Field& reference, const Surroundings& surroundings) {
  const std::string name(reference["name"].Peek());
  const std::string_view given = reference["kind"].Peek();
  const std::string_view kind = given.empty() ? "ClusterTrainingRuntime" : given;
  const auto found =
      std::find_if(surroundings.runtimes.begin(), surroundings.runtimes.end(), [&](const Field& runtime) {
        return runtime["metadata"]["name"].Peek() == name && runtime["kind"].Peek() == kind;
      });
  return found == surroundings.runtimes.end() ? nullptr : &*found;
}

// What the TrainJob goes by: its runtime's part, on which its own fields come to lie.
struct Base {
  Draft draft;
  Field processes;             // the runtime's numProcPerNode
  std::optional<Field> nodes;  // the runtime's numNodes
  bool mpi = false;
  std::optional<Draft> launcher;  // of mpi
  std::optional<spec::Framework> framework;
};

void ReadGroupPolicy(const Field& policy, spec::RunPolicy& run_policy) {
  if (const Field coscheduling = policy["coscheduling"]; coscheduling.present()) {
    run_policy.gang = spec::GangScheduler::kCoscheduling;
    run_policy.schedule_timeout = ReadSeconds(coscheduling["scheduleTimeoutSeconds"], 1);
  } else if (policy["volcano"].present()) {
    run_policy.gang = spec::GangScheduler::kVolcano;
    policy["volcano"].Say("runPolicy.gang: Volcano");
  }
}

// The pods that train, of a TrainingRuntime.
Base ReadRuntime(const Field& runtime, spec::TrainingJob& job) {
  runtime["apiVersion"].Text();
  runtime["kind"].Text();
  runtime["metadata"]["name"].Text();
  const Field spec = runtime["spec"];
  const Field policy = spec["mlPolicy"];
  const Field torch = policy["torch"];
  const Field mpi = policy["mpi"];
  Base base{.draft = {.role = "worker", .where = runtime},
            .processes = mpi.present() ? mpi["numProcPerNode"] : torch["numProcPerNode"],
            .nodes = policy["numNodes"],
            .mpi = mpi.present(),
            .framework = FrameworkNamed(runtime["metadata"]["labels"][kFrameworkLabel].Text().value_or(""))};
  if (base.framework) {
    runtime["metadata"]["labels"][kFrameworkLabel].Say("program.framework: " +
                                                       std::string(spec::Name(*base.framework)));
  }
  if (torch.is_map() && torch.Entries().empty()) torch.Explain("framework: PyTorch");
  if (torch.present() && !base.framework) base.framework = spec::Framework::kPyTorch;
  for (const char* field : {"mpiImplementation", "sshAuthMountPath", "runLauncherAsNode"}) {
    if (mpi[field].present()) mpi[field].Explain("not needed: Lockstep starts the processes itself");
  }
  JobLimits limits;
  bool seen = false;
  for (const Field& group : spec["template"]["spec"]["replicatedJobs"].Items()) {
    const Field step = group["template"]["metadata"]["labels"][kStepLabel];
    const bool launches = base.mpi && group["name"].Peek() == "launcher";
    if (seen || (!launches && !IsTrainer(group["name"].Peek()) && step.Peek() != "trainer")) {
      group.LeaveOut(
          "left out: one group of pods trains, and is a role; what prepares data is done before, or in an "
          "initContainer of spec.template");
      continue;
    }
    if (step.present()) step.Explain("the pods that train");
    std::optional<Draft> draft = ReadReplicatedJob(group, limits);
    if (!draft) continue;
    if (launches) {
      base.launcher = std::move(*draft);
      continue;
    }
    seen = true;
    base.draft = std::move(*draft);
    base.draft.role = "worker";
  }
  if (base.launcher && seen) TakeLauncher(*base.launcher, base.draft);
  if (limits.backoff_limit) job.run_policy.max_restarts = *limits.backoff_limit;
  if (const std::optional<int> restarts =
          ReadCount(spec["template"]["spec"]["failurePolicy"]["maxRestarts"], 0))
    job.run_policy.max_restarts = *restarts;
  job.run_policy.active_deadline = limits.active_deadline;
  job.run_policy.exit_codes = std::move(limits.exit_codes);
  base.draft.replicas = ReadCount(policy["numNodes"], 1).value_or(base.draft.replicas);
  ReadGroupPolicy(spec["podGroupPolicy"], job.run_policy);
  return base;
}

// spec.trainer over what the runtime has.
void ReadTrainer(const Field& trainer, Draft& draft) {
  Pod& pod = draft.pod;
  if (!pod.container_field) pod.container_field = trainer;
  ReadImage(trainer["image"], pod);
  ReadCommand(trainer["command"], pod);
  ReadArguments(trainer["args"], pod);
  ReadEnvironment(trainer["env"], pod);
  ReadResources(trainer["resourcesPerNode"], pod);
  draft.replicas = ReadCount(trainer["numNodes"], 1).value_or(draft.replicas);
}

// Lists are added to, everything else takes the place of what was there.
void Lay(const Field& field, Json& over) {
  Json value = field.Value();
  if (value.is_array() && over.is_array()) {
    for (Json& item : value) over.push_back(std::move(item));
  } else {
    over = std::move(value);
  }
}

void LayPodSpec(const Field& spec, std::string_view but, Pod& pod) {
  for (const auto& [key, field] : spec.Entries()) {
    if (key == but || !field.present()) continue;
    if (key != "containers") {
      Lay(field, pod.spec[key]);
      continue;
    }
    for (const Field& container : field.Items()) {
      if (!IsTrainer(container["name"].Peek())) {
        pod.other_containers.push_back(container.Value());
        continue;
      }
      container["name"].Text();
      ReadEnvironment(container["env"], pod);
      for (const auto& [part, value] : container.Entries()) {
        if (part != "name" && part != "env" && value.present()) Lay(value, pod.container[part]);
      }
    }
  }
}

// podTemplateOverrides, and podSpecOverrides as they were before.
void ReadOverrides(const Field& overrides, bool templates, Pod& pod) {
  for (const Field& override : overrides.Items()) {
    const Field targets = override["targetJobs"];
    const std::vector<Field> all = targets.Items();
    if (std::none_of(all.begin(), all.end(),
                     [](const Field& job) { return IsTrainer(job["name"].Peek()); })) {
      override.LeaveOut("left out: it is not about the pods that train, node or trainer");
      continue;
    }
    targets.Explain("the role worker");
    LayPodSpec(templates ? override["spec"] : override, templates ? "" : "targetJobs", pod);
    for (const char* map : {"labels", "annotations"}) {
      for (const auto& [key, field] : override["metadata"][map].Entries())
        pod.metadata[map][key] = field.Text().value_or("");
    }
  }
}

void ReadWords(const Field& map, std::map<std::string, std::string>& to) {
  for (const auto& [key, field] : map.Entries()) to[key] = field.Text().value_or("");
}

}  // namespace

std::optional<spec::TrainingJob> ReadTrainJob(const Field& object, const Surroundings& surroundings) {
  spec::TrainingJob job;
  ReadObject(object, job);
  const Field spec = object["spec"];
  const Field reference = spec["runtimeRef"];
  const Field trainer = spec["trainer"];
  Base base{.draft = {.role = "worker", .where = spec}, .processes = trainer["numProcPerNode"]};
  const std::string name = reference["name"].Text().value_or("");
  if (const Field* runtime = FindRuntime(reference, surroundings)) {
    base = ReadRuntime(*runtime, job);
    if (!base.framework) base.framework = FrameworkNamed(name);
    reference.Explain("its pods are those of " + spec::Quoted(name) + ", which is among the files");
  } else {
    base.framework = FrameworkNamed(name);
    reference.LeaveOut(
        spec::Quoted(name) +
        " is not among the files, so what it says is left out: image, command, "
        "volumes; print it (kubectl get clustertrainingruntime NAME -o yaml) and name the file too");
  }
  if (trainer["numNodes"].present() && base.nodes && base.nodes->present())
    base.nodes->Explain("the TrainJob's numNodes takes its place");
  ReadTrainer(trainer, base.draft);
  ReadOverrides(spec["podTemplateOverrides"], true, base.draft.pod);
  ReadOverrides(spec["podSpecOverrides"], false, base.draft.pod);
  const spec::Framework framework = base.framework ? *base.framework : GuessFramework(base.draft.pod);
  if (trainer["numProcPerNode"].present() && base.processes.present() &&
      base.processes.path() != trainer["numProcPerNode"].path()) {
    base.processes.Explain("the TrainJob's numProcPerNode takes its place");
  }
  const Field processes = trainer["numProcPerNode"].present() ? trainer["numProcPerNode"] : base.processes;
  if (base.mpi || framework == spec::Framework::kMpi) {
    StartAsMpirunDoes(ReadCount(processes, 1).value_or(1), base.draft);
  } else {
    StartAsTorchrunDoes(processes, "auto", base.draft);
  }
  ReadWords(spec["labels"], job.labels);
  ReadWords(spec["annotations"], job.annotations);
  job.suspend = spec["suspend"].Boolean().value_or(false);
  if (const auto deadline = ReadSeconds(spec["activeDeadlineSeconds"], 1))
    job.run_policy.active_deadline = *deadline;
  for (const char* part : {"initializer", "datasetConfig", "modelConfig"}) {
    if (spec[part].present()) {
      spec[part].LeaveOut("left out: get data and models before, or in an initContainer of spec.template");
    }
  }
  std::vector<Draft> drafts{std::move(base.draft)};
  SetRoles(std::move(drafts), framework, job);
  return job;
}

}  // namespace lockstep::importer
