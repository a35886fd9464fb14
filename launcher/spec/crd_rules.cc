#include "launcher/spec/crd_rules.h"

#include <utility>

#include "common/contract/environment.h"

namespace lockstep::spec {

namespace {

// "[0,1,2]": CEL counts only by going through a list.
std::string Indices(size_t from, size_t count) {
  std::string list = "[";
  for (size_t i = from; i < count; ++i) list += (i == from ? "" : ",") + std::to_string(i);
  return list + "]";
}

std::string Replaced(std::string text, const std::vector<std::pair<std::string, std::string>>& words) {
  for (const auto& [name, value] : words) {
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + value.size()))
      text.replace(at, name.size(), value);
  }
  return text;
}

constexpr size_t kMostExitRules = 32;
constexpr size_t kMostStages = 64;

// What the rules of a whole spec speak of. CEL has no variables here.
std::vector<std::pair<std::string, std::string>> SpecWords() {
  return {
      {"$count", "($replicas * $processes)"},
      {"$type", "self.?strategy.?type.orValue($replicas > 1 ? 'MultiWorkerMirrored' : 'Mirrored')"},
      {"$ops", "self.?strategy.?crossDeviceOps.orValue('Auto')"},
      {"$replicas",
       "(has(self.roles) ? self.roles.filter(r, r.name == 'worker').map(r, r.replicas).sum() : "
       "self.?replicas.orValue(1))"},
      // 0: not given
      {"$processes",
       "(has(self.roles) ? self.roles.filter(r, r.name == 'worker').map(r, "
       "r.?processesPerReplica.orValue(0)).sum() : self.?processesPerReplica.orValue(0))"},
      {"$cpu",
       "(has(self.roles) ? self.roles.exists(r, r.name == 'worker' && r.?devices.?type.orValue('Auto') == "
       "'CPU') : self.?devices.?type.orValue('Auto') == 'CPU')"},
      {"$ps", "(has(self.roles) && self.roles.exists(r, r.name == 'ps'))"},
  };
}

}  // namespace

template <>
CelRules RulesOf(const Devices*) {
  return {
      {"self.type != 'CPU' || !has(self.visible)", "visible chooses among devices, but type is CPU"},
      {"self.type != 'CPU' || self.?memory.?policy.orValue('Growth') == 'Growth'",
       "memory.policy is about a GPU's memory, but type is CPU"},
      {"self.type != 'CPU' || !has(self.virtual) || !has(self.virtual.memoryLimit)",
       "virtual.memoryLimit is about a GPU's memory, but type is CPU"},
      {"!(self.?memory.?policy.orValue('Growth') in ['Limit', 'Fraction']) || !has(self.virtual) || "
       "!has(self.virtual.memoryLimit)",
       "memory.policy and virtual.memoryLimit both bound a device's memory; keep one of them"},
  };
}

template <>
CelRules RulesOf(const DeviceMemory*) {
  return {
      {"self.policy != 'Limit' || has(self.limit)", "policy Limit needs limit, for example limit: 4Gi"},
      {"self.policy != 'Fraction' || has(self.fraction)",
       "policy Fraction needs fraction, for example fraction: 0.5"},
      {"self.enforce != 'MPS' || self.policy in ['Limit', 'Fraction']",
       "MPS holds a process to a limit; set policy: Limit or Fraction, or enforce: None"},
  };
}

template <>
CelRules RulesOf(const Role*) {
  return {{"self.name != 'evaluator' || self.replicas == 1", "there is one evaluator; set replicas: 1"}};
}

template <>
CelRules RulesOf(const Program*) {
  return {
      {"size(self.command[0]) > 0", "command[0] is empty; name the program to run"},
      {"!has(self.prepare) || size(self.prepare[0]) > 0", "prepare[0] is empty; name the program to run"},
      {"!has(self.progress) || self.progress.logPattern.contains('(?<step>')",
       "progress.logPattern has no group named step; write (?<step>\\d+) where the step's number stands"},
  };
}

template <>
CelRules RulesOf(const std::pair<std::string, std::string>*) {
  std::string names;
  for (const std::string_view name : contract::kReserved)
    names += (names.empty() ? "'" : ", '") + std::string(name) + "'";
  return {{"!self.name.startsWith('" + std::string(contract::kOwnPrefix) + "') && !(self.name in [" + names +
               "])",
           "the variable is set by the launcher; leave it out"}};
}

template <>
CelRules RulesOf(const Strategy*) {
  const std::string next = Replaced(
      "!has(self.stages) || $is.all(i, i >= size(self.stages) || self.stages[i].first == "
      "self.stages[i - 1].last + 1)",
      {{"$is", Indices(1, kMostStages)}});
  return {
      {"!has(self.waitFor) || self.?synchronous.orValue(true)", "nobody waits with synchronous: false"},
      {"!has(self.maxGradientAge) || !self.?synchronous.orValue(true)",
       "gradients do not age with synchronous: true"},
      {"!has(self.stages) || self.stages[0].first == 0", "the first stage begins at layer 0"},
      {"!has(self.stages) || self.stages.all(s, s.first <= s.last)", "a stage ends before it begins"},
      {next, "the stages leave out or repeat a layer"},
  };
}

template <>
CelRules RulesOf(const Data*) {
  return {
      {"self.format == 'Digits' || size(self.?path.orValue('')) > 0", "the format needs path"},
      {"self.format != 'Digits' || self.validationSamples < self.?samples.orValue(50000)",
       "all samples are for validation; fewer than samples"},
  };
}

template <>
CelRules RulesOf(const Layer*) {
  return {{"self.type != 'Dense' || has(self.units)", "a Dense layer needs units, for example units: 128"}};
}

template <>
CelRules RulesOf(const Model*) {
  constexpr char kLast[] = "self.layers[size(self.layers) - 1].?units.orValue(0)";
  return {
      {"self.layers.all(a, !has(a.name) || self.layers.exists_one(b, has(b.name) && b.name == a.name))",
       "give every layer its own name"},
      {"self.loss != 'MeanSquaredError' || !has(self.metrics) || !('Accuracy' in self.metrics)",
       "Accuracy counts right classes, and MeanSquaredError has none"},
      {"self.loss != 'MeanSquaredError' || " + std::string(kLast) + " in [0, 1]",
       "MeanSquaredError compares one output with the label; the last layer needs units: 1"},
      {"self.loss == 'MeanSquaredError' || " + std::string(kLast) + " != 1",
       "one output is one class only; give the last layer a unit for each class, or set loss: "
       "MeanSquaredError"},
  };
}

template <>
CelRules RulesOf(const Optimizer*) {
  return {{"!self.?nesterov.orValue(false) || self.?momentum.orValue(0.0) > 0.0",
           "Nesterov's momentum needs momentum; set it, for example momentum: 0.9"}};
}

template <>
CelRules RulesOf(const Trainer*) {
  return {
      {"self.?data.?format.orValue('Digits') != 'Digits' || self.batchSize <= "
       "self.?data.?samples.orValue(50000) - self.?data.?validationSamples.orValue(0)",
       "batchSize is more than the training samples"},
      {"!(self.?data.?format.orValue('Digits') in ['Digits', 'CIFAR10']) || self.model.loss == "
       "'MeanSquaredError' || !has(self.model.layers[size(self.model.layers) - 1].units) || "
       "self.model.layers[size(self.model.layers) - 1].units >= 10",
       "the data has 10 classes; the last layer needs units: 10"},
  };
}

template <>
CelRules RulesOf(const ExitCodeRule*) {
  return {{"has(self.codes) || has(self.reason)", "the rule matches nothing; give codes, a reason or both"}};
}

template <>
CelRules RulesOf(const RunPolicy*) {
  const std::string rules = "self.exitCodes";
  return {
      {Replaced("!has($r) || $is.all(i, i >= size($r) || !has($r[i].codes) || $is.all(j, j >= i || "
                "!has($r[j].codes) || (has($r[j].reason) && $r[j].reason != $r[i].?reason.orValue('')) || "
                "$r[i].codes.all(c, !(c in $r[j].codes))))",
                {{"$is", Indices(0, kMostExitRules)}, {"$r", rules}}),
       "a rule of exitCodes before takes every code of this reason; leave it out"}};
}

template <>
CelRules RulesOf(const Spec*) {
  const CelRules rules = {
      {"!has(self.roles) || self.roles.exists(r, r.name == 'worker')",
       "no role is a worker; add {name: worker}"},
      {"has(self.trainer) || has(self.program) || (has(self.roles) && self.roles.all(r, has(r.program)))",
       "neither trainer nor program is given; give one of them"},
      {"!has(self.trainer) || (self.?devices.?type.orValue('Auto') != 'TPU' && (!has(self.roles) || "
       "self.roles.all(r, r.?devices.?type.orValue('Auto') != 'TPU')))",
       "TPU is for programs only; the trainer has GPU, CPU and Auto"},
      {"!has(self.trainer) || $type != 'OneDevice' || ($replicas == 1 && $processes <= 1)",
       "OneDevice is one process; set replicas and processesPerReplica to 1, or another strategy.type"},
      {"!has(self.trainer) || $type != 'Mirrored' || $replicas == 1",
       "Mirrored is for one replica; set strategy.type: MultiWorkerMirrored"},
      {"!has(self.trainer) || $type != 'CentralStorage' || $replicas == 1",
       "CentralStorage is for one replica; set strategy.type: ParameterServer"},
      {"!has(self.trainer) || $ops != 'NCCL' || !$cpu",
       "crossDeviceOps NCCL sums on GPUs, and devices.type is CPU"},
      {"!has(self.trainer) || !($ops in ['HierarchicalCopy', 'ReductionToOneDevice', 'SharedMemory']) || "
       "$type != "
       "'MultiWorkerMirrored' || $replicas == 1",
       "crossDeviceOps does not reach from machine to machine; set Gloo, or leave it out"},
      {"!has(self.trainer) || ($type == 'ParameterServer') == $ps",
       "strategy.type ParameterServer and a role ps belong together"},
      {"!has(self.trainer) || !has(self.strategy) || !has(self.strategy.waitFor) || $processes == 0 || "
       "self.strategy.waitFor <= $count",
       "strategy.waitFor is more than there are workers"},
      {"!has(self.trainer) || !has(self.strategy) || !has(self.strategy.microBatches) || "
       "self.trainer.batchSize % "
       "self.strategy.microBatches == 0",
       "strategy.microBatches does not divide the batch"},
      {"!has(self.trainer) || !has(self.strategy) || !has(self.strategy.stages) || "
       "self.strategy.stages[size(self.strategy.stages) - 1].last == size(self.trainer.model.layers) - 1",
       "the stages and the model end at the same layer"},
      {"!has(self.trainer) || $processes == 0 || !($type in ['Mirrored', 'MultiWorkerMirrored']) || "
       "self.trainer.batchSize % $count == 0",
       "the number of processes does not divide trainer.batchSize"},
      {"self.?runPolicy.?minReplicas.orValue(0) <= $replicas", "runPolicy.minReplicas is more than replicas"},
  };
  CelRules spelt;
  for (const CelRule& rule : rules) {
    spelt.push_back({Replaced(rule.rule, SpecWords()), rule.message});
  }
  return spelt;
}

}  // namespace lockstep::spec
