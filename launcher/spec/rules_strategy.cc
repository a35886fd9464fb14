#include <algorithm>
#include <string_view>

#include "launcher/spec/enums.h"
#include "launcher/spec/quote.h"
#include "launcher/spec/rules.h"

namespace lockstep::spec {

namespace {

constexpr char kType[] = "spec.strategy.type";

void CheckReplicas(const TrainingJob& job, const Role& worker, std::vector<Finding>* findings) {
  const std::string path = PathOfWorker(job);
  const StrategyType type = job.strategy.type;
  if (type == StrategyType::kOneDevice && worker.processes_per_replica.value_or(1) > 1) {
    findings->push_back({kType,
                         "OneDevice is one process; set processesPerReplica: 1, or type: Mirrored",
                         {path + ".processesPerReplica"}});
  }
  if (worker.replicas == 1) return;
  const std::string replicas = std::to_string(worker.replicas) + " replicas";
  if (type == StrategyType::kOneDevice) {
    findings->push_back({kType,
                         "OneDevice is one process; set replicas: 1, or type: MultiWorkerMirrored",
                         {path + ".replicas"}});
  } else if (type == StrategyType::kMirrored) {
    findings->push_back(
        {kType,
         "Mirrored is for one replica, and there are " + replicas + "; set type: MultiWorkerMirrored",
         {path + ".replicas"}});
  } else if (type == StrategyType::kCentralStorage) {
    findings->push_back(
        {kType,
         "CentralStorage is for one replica, and there are " + replicas + "; set type: ParameterServer",
         {path + ".replicas"}});
  }
}

void CheckReduction(const TrainingJob& job, const Role& worker, std::vector<Finding>* findings) {
  constexpr char kPath[] = "spec.strategy.crossDeviceOps";
  const CrossDeviceOps ops = job.strategy.cross_device_ops;
  const std::string name(Name(ops));
  const std::string path = PathOfWorker(job);
  if (ops == CrossDeviceOps::kNccl && worker.devices.type == DeviceType::kCpu) {
    findings->push_back(
        {kPath,
         "NCCL sums on GPUs, and devices.type is CPU; leave it out, or set SharedMemory or Gloo",
         {path + ".devices.type"}});
  }
  const bool one_machine = ops == CrossDeviceOps::kHierarchicalCopy ||
                           ops == CrossDeviceOps::kReductionToOneDevice ||
                           ops == CrossDeviceOps::kSharedMemory;
  if (one_machine && job.strategy.type == StrategyType::kMultiWorkerMirrored && worker.replicas > 1) {
    findings->push_back({kPath,
                         name + " does not reach from machine to machine; set Gloo, or leave it out",
                         {kType, path + ".replicas"}});
  }
}

void CheckCentralStorage(const TrainingJob& job, std::vector<Finding>* findings) {
  const VariablePlacement variables = job.strategy.variables;
  if (job.strategy.type != StrategyType::kCentralStorage || variables == VariablePlacement::kAuto ||
      variables == VariablePlacement::kCpu) {
    return;
  }
  findings->push_back({"spec.strategy.variables",
                       "CentralStorage has the variables in one place; set CPU, or leave it out",
                       {kType}});
}

void CheckParameterServer(const TrainingJob& job, const Role& worker, std::vector<Finding>* findings) {
  const Strategy& strategy = job.strategy;
  const auto has = [&](std::string_view name) {
    return std::any_of(job.roles.begin(), job.roles.end(),
                       [&](const Role& role) { return role.name == name; });
  };
  const bool served = strategy.type == StrategyType::kParameterServer;
  if (served && !has("ps")) {
    findings->push_back({kType, "ParameterServer needs servers; add a role {name: ps}", {"spec.roles"}});
  }
  if (!served && has("ps")) {
    findings->push_back({"spec.roles",
                         "the role ps belongs to strategy.type: ParameterServer, which is " +
                             std::string(Name(strategy.type)) + "; change one of them",
                         {kType}});
  }
  if (!served) return;
  if (strategy.wait_for && !strategy.synchronous) {
    findings->push_back({"spec.strategy.waitFor",
                         "nobody waits with synchronous: false; leave it out",
                         {"spec.strategy.synchronous"}});
  }
  if (strategy.max_gradient_age && strategy.synchronous) {
    findings->push_back({"spec.strategy.maxGradientAge",
                         "gradients do not age with synchronous: true; leave it out",
                         {"spec.strategy.synchronous"}});
  }
  if (strategy.wait_for && worker.processes_per_replica) {
    const int64_t workers = int64_t{worker.replicas} * *worker.processes_per_replica;
    if (*strategy.wait_for > workers) {
      findings->push_back({"spec.strategy.waitFor",
                           std::to_string(*strategy.wait_for) + " gradients never come from " +
                               std::to_string(workers) + " workers; at most " + std::to_string(workers),
                           {PathOfWorker(job) + ".replicas", PathOfWorker(job) + ".processesPerReplica"}});
    }
  }
}

void CheckPipeline(const TrainingJob& job, const Role& worker, std::vector<Finding>* findings) {
  const Strategy& strategy = job.strategy;
  if (strategy.type != StrategyType::kPipeline) return;
  const Trainer& trainer = *job.trainer;
  const std::string layers = "spec.trainer.model.layers";
  if (strategy.micro_batches && trainer.batch_size % *strategy.micro_batches != 0) {
    findings->push_back({"spec.strategy.microBatches",
                         std::to_string(*strategy.micro_batches) + " does not divide the batch of " +
                             std::to_string(trainer.batch_size) + "; choose one of its divisors",
                         {"spec.trainer.batchSize"}});
  }
  if (strategy.stages && strategy.stage_memory) {
    findings->push_back({"spec.strategy.stageMemory",
                         "the stages are given by hand; leave out stageMemory or stages",
                         {"spec.strategy.stages"}});
  }
  if (strategy.device_map == DeviceMap::kSequential && strategy.stages) {
    findings->push_back({"spec.strategy.deviceMap",
                         "the stages are given by hand; leave out deviceMap or stages",
                         {"spec.strategy.stages"}});
  } else if (strategy.device_map == DeviceMap::kSequential && !strategy.stage_memory) {
    findings->push_back(
        {"spec.strategy.deviceMap", "Sequential fills stages up to stageMemory, which is not given", {}});
  }
  if (!strategy.stages || strategy.stages->empty()) return;  // (found before)
  const auto stages = static_cast<int64_t>(strategy.stages->size());
  const int64_t processes = int64_t{worker.replicas} * worker.processes_per_replica.value_or(0);
  if (processes % stages != 0) {
    findings->push_back({"spec.strategy.stages",
                         std::to_string(processes) + " processes do not make pipelines of " +
                             std::to_string(stages) + " stages; start a multiple of " +
                             std::to_string(stages),
                         {PathOfWorker(job) + ".processesPerReplica"}});
  }
  int next = 0;
  const int count = static_cast<int>(trainer.model.layers.size());
  for (size_t i = 0; i < strategy.stages->size(); ++i) {
    const LayerRange& stage = (*strategy.stages)[i];
    const std::string path = PathTo("spec.strategy.stages", i);
    if (stage.last < stage.first) {
      findings->push_back({path + ".last",
                           "the stage ends before it begins; at least " + std::to_string(stage.first),
                           {path}});
      return;
    }
    if (stage.first != next) {
      findings->push_back({path + ".first",
                           "the stages leave out or repeat a layer; " + std::to_string(next) + " comes next",
                           {path}});
      return;
    }
    next = stage.last + 1;
  }
  if (next != count) {
    findings->push_back({"spec.strategy.stages",
                         "the stages end at layer " + std::to_string(next - 1) + ", the model at layer " +
                             std::to_string(count - 1) + "; let them end together",
                         {layers}});
  }
}

// "*" in a rule stands for any letters.
bool Matches(std::string_view pattern, std::string_view name) {
  size_t p = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;
  size_t resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

void CheckPlacement(const TrainingJob& job, std::vector<Finding>* findings) {
  const auto& layers = job.trainer->model.layers;
  for (size_t i = 0; i < job.layer_placement.size(); ++i) {
    const std::string& match = job.layer_placement[i].match;
    if (std::any_of(layers.begin(), layers.end(),
                    [&](const Layer& layer) { return Matches(match, layer.name); }))
      continue;
    std::vector<std::string_view> names;
    for (const Layer& layer : layers) names.push_back(layer.name);
    const std::string_view nearest = Nearest(match, names);
    findings->push_back(
        {PathTo("spec.placement.layers", i) + ".match",
         "no layer is named " + Quoted(match) +
             (nearest.empty() ? "; give a layer's name" : "; did you mean " + std::string(nearest) + "?"),
         {"spec.trainer.model.layers"}});
  }
}

}  // namespace

void CheckStrategy(const TrainingJob& job, std::vector<Finding>* findings) {
  const Role* worker = WorkerOf(job);
  if (!job.trainer || worker == nullptr) return;
  CheckReplicas(job, *worker, findings);
  CheckReduction(job, *worker, findings);
  CheckCentralStorage(job, findings);
  CheckParameterServer(job, *worker, findings);
  CheckPipeline(job, *worker, findings);
  CheckPlacement(job, findings);
}

}  // namespace lockstep::spec
