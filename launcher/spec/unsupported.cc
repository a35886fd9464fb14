#include "launcher/spec/unsupported.h"

#include <algorithm>
#include <string>
#include <utility>

#include "launcher/spec/enums.h"
#include "launcher/spec/quote.h"
#include "launcher/spec/roles.h"
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

void CheckTpus(const Role& role, const std::string& path, Collector& found) {
  if (role.devices.type != DeviceType::kTpu) return;
  found.If(role.processes_per_replica.value_or(1) != 1, path + ".processesPerReplica",
           "one process has all TPUs of its machine");
  found.If(TpuChipsOf(role) == 0, path + ".devices.topology",
           role.devices.topology + " has chips that " + std::to_string(role.replicas) +
               " replicas do not share evenly, which is not supported");
}

void CheckPipeline(const TrainingJob& job, Collector& found) {
  const Role* const worker = WorkerOf(job);
  if (job.strategy.type != StrategyType::kPipeline || worker == nullptr) return;
  found.If(worker->replicas > 1, PathOfWorker(job) + ".replicas",
           "a pipeline goes from process to process of one machine; set processesPerReplica instead, more "
           "than one replica is not supported");
}

// (With soft placement it leaves its GPU idle.)
void CheckServer(const TrainingJob& job, const Role& role, const std::string& path, Collector& found) {
  found.If(job.trainer && !role.program && role.name == "ps" && role.devices.type == DeviceType::kGpu &&
               !role.devices.soft_placement,
           path + ".devices.type", "servers update variables on processors; set CPU, GPUs are not supported");
}

// Workers of parameter servers keep no moving statistics together.
void CheckServedLayer(bool served, const InnerLayer& layer, const std::string& path, Collector& found) {
  found.If(served && layer.type == "BatchNormalization", path + ".type",
           "BatchNormalization is not built with ParameterServer");
}

void CheckTrainer(const TrainingJob& job, const Trainer& trainer, Collector& found) {
  const bool served = job.strategy.type == StrategyType::kParameterServer;
  const std::string with = " with ParameterServer";
  const Optimizer& optimizer = trainer.optimizer;
  found.If(served && optimizer.global_clip_norm.has_value(), "spec.trainer.optimizer.globalClipNorm",
           "no norm is summed over the servers" + with);
  found.If(served && optimizer.moving_average && optimizer.moving_average->evaluate,
           "spec.trainer.optimizer.movingAverage.evaluate",
           "the average is not evaluated; false can be had" + with);
  found.If(served && trainer.data.augmentation.has_value(), "spec.trainer.data.augmentation",
           "images are not augmented" + with);
  found.If(served && trainer.data.normalization.has_value(), "spec.trainer.data.normalization",
           "images are not normalised" + with);
  CheckPipeline(job, found);
  for (size_t i = 0; i < trainer.model.layers.size(); ++i) {
    const Layer& layer = trainer.model.layers[i];
    const std::string layer_path = PathTo("spec.trainer.model.layers", i);
    CheckServedLayer(served, layer, layer_path, found);
    for (size_t j = 0; j < layer.layers.size(); ++j)
      CheckServedLayer(served, layer.layers[j], PathTo(layer_path + ".layers", j), found);
    for (size_t j = 0; j < layer.shortcut.size(); ++j)
      CheckServedLayer(served, layer.shortcut[j], PathTo(layer_path + ".shortcut", j), found);
  }
}

void CheckProgram(const TrainingJob& job, const Program& program, const std::string& path, Collector& found) {
  const bool mpi = program.framework == Framework::kMpi || program.framework == Framework::kHorovod;
  found.If(mpi && job.roles.size() > 1, path + ".framework",
           "the ranks of " + std::string(Name(program.framework)) +
               " are those of a job of one role; several are not supported");
}

}  // namespace

std::vector<Finding> UnsupportedFields(const TrainingJob& job) {
  Collector found;
  for (size_t i = 0; i < job.roles.size(); ++i) {
    const Role& role = job.roles[i];
    const std::string path = PathOfRole(job, i);
    found.If(
        job.trainer && !role.program && role.name == "evaluator" &&
            job.strategy.type != StrategyType::kParameterServer,
        path + ".name",
        "the trainer has an evaluator beside ParameterServer's workers only; the others evaluate themselves");
    if (role.program) CheckProgram(job, *role.program, path + ".program", found);
    CheckTpus(role, path, found);
    CheckServer(job, role, path, found);
    found.If(RestartsAlone(job) && role.devices.memory.enforce == MemoryEnforcement::kMps,
             path + ".devices.memory.enforce", "MPS does not outlive a process that is started again alone");
  }
  found.If(job.roles.size() > 1 && job.run_policy.min_replicas, "spec.runPolicy.minReplicas",
           "a job of several roles does not go on with fewer replicas");
  if (job.trainer) CheckTrainer(job, *job.trainer, found);
  if (job.program) CheckProgram(job, *job.program, "spec.program", found);
  found.If(job.network.rdma, "spec.network.rdma", "RDMA is not used");
  found.If(job.suspend, "spec.suspend", "a job on one machine is not suspended; stop it instead");
  return found.Take();
}

}  // namespace lockstep::spec
