#include "launcher/spec/unsupported.h"

#include <algorithm>
#include <string>
#include <utility>

#include "launcher/spec/enums.h"
#include "launcher/spec/quote.h"
#include "launcher/spec/rules.h"

namespace lockstep::spec {

namespace {

class Collector {
 public:
  void If(bool used, std::string path, const std::string& what) {
    if (used) findings_.push_back({std::move(path), what + " in this version", {}});
  }
  std::vector<Finding> Take() { return std::move(findings_); }

 private:
  std::vector<Finding> findings_;
};

void CheckDevices(const Devices& devices, const std::string& path, Collector& found) {
  found.If(devices.type == DeviceType::kTpu, path + ".type", "TPUs are not found");
}

void CheckStrategy(const Strategy& strategy, Collector& found) {
  const auto name = [](auto value) { return std::string(Name(value)); };
  const StrategyType type = strategy.type;
  found.If(type == StrategyType::kParameterServer || type == StrategyType::kCentralStorage ||
               type == StrategyType::kPipeline,
           "spec.strategy.type",
           name(type) + " is not built; OneDevice, Mirrored and MultiWorkerMirrored are");
  found.If(strategy.shard != Shard::kNone, "spec.strategy.shard",
           name(strategy.shard) + " is not built; None is");
  found.If(strategy.scaling != Scaling::kKeepGlobalBatch, "spec.strategy.scaling",
           name(strategy.scaling) + " is not built, since no job changes its size; KeepGlobalBatch is");
}

void CheckTrainer(const TrainingJob& job, const Trainer& trainer, Collector& found) {
  CheckStrategy(job.strategy, found);
  found.If(trainer.data.format == DataFormat::kCifar10, "spec.trainer.data.format",
           "CIFAR10 is not read; Digits, IDX and CSV are");
  for (size_t i = 0; i < trainer.model.layers.size(); ++i) {
    const std::string& type = trainer.model.layers[i].type;
    found.If(type != "Dense", PathTo("spec.trainer.model.layers", i) + ".type",
             type + " layers are not built; Dense is");
  }
}

void CheckProgram(const Program& program, const std::string& path, Collector& found) {
  found.If(program.framework == Framework::kHorovod || program.framework == Framework::kMpi,
           path + ".framework",
           std::string(Name(program.framework)) +
               "'s environment is not made; TensorFlow's, PyTorch's and JAX's are");
  found.If(!program.prepare.empty(), path + ".prepare", "no program is run before the processes");
  found.If(program.progress_log_pattern.has_value(), path + ".progress.logPattern",
           "progress is not read from the output; a program can write events (docs/contract.md)");
}

}  // namespace

std::vector<Finding> UnsupportedFields(const TrainingJob& job) {
  Collector found;
  for (size_t i = 0; i < job.roles.size(); ++i) {
    const Role& role = job.roles[i];
    const std::string path = PathOfRole(job, i);
    found.If(role.name != "worker", path + ".name", "the role " + role.name + " is not run");
    found.If(role.program.has_value(), path + ".program", "a role has no program of its own");
    CheckDevices(role.devices, path + ".devices", found);
  }
  if (job.trainer) CheckTrainer(job, *job.trainer, found);
  if (job.program) CheckProgram(*job.program, "spec.program", found);
  found.If(job.network.rdma, "spec.network.rdma", "RDMA is not used");
  const Role* worker = WorkerOf(job);
  found.If(
      job.run_policy.min_replicas && worker != nullptr && *job.run_policy.min_replicas < worker->replicas,
      "spec.runPolicy.minReplicas", "a job does not go on with fewer replicas");
  found.If(job.suspend, "spec.suspend", "a job on one machine is not suspended; stop it instead");
  found.If(job.inject_launcher, "spec.launcher.inject", "nothing is injected on one machine");
  return found.Take();
}

}  // namespace lockstep::spec
