#include "launcher/spec/crd_rules.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "common/contract/environment.h"
#include "launcher/spec/schema_default.h"

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
constexpr size_t kMostBoundaries = 64;

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

// A visitor of fields.h: what may change only while the job is suspended.
class FixedFields {
 public:
  struct Field {
    std::string_view name;
    nlohmann::ordered_json fallback;  // what the schema gives one that is not there; null: nothing
  };

  template <class T>
  void operator()(std::string_view name, T& member, const Facets& facets, const When& = {}) {
    if (facets.live) return;
    fields_.push_back({name, facets.or_else.empty() ? SchemaDefault(member, facets) : nullptr});
  }
  void Object(std::string_view name, std::string&, const Facets&, const When& = {}) {
    fields_.push_back({name, nullptr});
  }
  void Ignored(std::string_view, std::string_view) {}
  bool Wants(bool) const { return true; }

  template <class T>
  static std::vector<Field> Of(T described) {
    FixedFields visitor;
    Describe(visitor, described);
    return std::move(visitor.fields_);
  }

 private:
  std::vector<Field> fields_;
};

// An update keeps what the pods of a running job are made of. With has() rather than optionals, whose size a
// server does not know when it bounds the cost of comparing them.
CelRules TransitionRules() {
  const std::string message = " changes only while the job is suspended; set suspend: true too";
  CelRules rules;
  const auto add = [&](const std::string& field, const std::string& same) {
    rules.push_back({"self.suspend || oldSelf.suspend || (" + same + ")", field + message});
  };
  TrainingJob job;
  Role worker;
  std::vector<Role> roles;
  for (const auto& [name, fallback] : FixedFields::Of(Spec{{&job, &worker, &roles}})) {
    if (name == "runPolicy") continue;
    add(std::string(name),
        Replaced("has($new) == has($old) && (!has($new) || $new == $old)",
                 {{"$new", "self.$name"}, {"$old", "oldSelf.$name"}, {"$name", std::string(name)}}));
  }
  for (const auto& [name, fallback] : FixedFields::Of(RunPolicy())) {
    std::string same = "($hasNew) == ($hasOld) && (!($hasNew) || $new == $old)";
    if (!fallback.is_null()) {
      same = "($hasNew) ? (($hasOld) ? $new == $old : $new == $fallback) : (!($hasOld) || $old == $fallback)";
    }
    add("runPolicy." + std::string(name),
        Replaced(same, {{"$hasNew", "has(self.runPolicy) && has($new)"},
                        {"$hasOld", "has(oldSelf.runPolicy) && has($old)"},
                        {"$new", "self.runPolicy.$name"},
                        {"$old", "oldSelf.runPolicy.$name"},
                        {"$name", std::string(name)},
                        {"$fallback",
                         fallback.is_string() ? "'" + fallback.get<std::string>() + "'" : fallback.dump()}}));
  }
  return rules;
}

}  // namespace

template <>
CelRules RulesOf(const Devices*) {
  return {
      {"self.type != 'TPU' || (has(self.accelerator) && has(self.topology))",
       "type TPU needs accelerator and topology, for example tpu-v5-lite-podslice and 2x4"},
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
  return {{"!(self.name in ['evaluator', 'chief']) || self.replicas == 1",
           "there is one evaluator, and one chief; set replicas: 1"}};
}

template <>
CelRules RulesOf(const Program*) {
  return {
      {"size(self.command[0]) > 0", "command[0] is empty; name the program to run"},
      {"!has(self.prepare) || size(self.prepare[0]) > 0", "prepare[0] is empty; name the program to run"},
      {"!has(self.envFiles) || self.envFiles.all(file, size(file) > 0)",
       "a name in envFiles is empty; name a file"},
      {"!has(self.progress) || self.progress.logPattern.contains('(?<step>')",
       "progress.logPattern has no group named step; write (?<step>\\d+) where the step's number stands"},
      {"!has(self.progress) || self.progress.logPattern.findAll('[(][?]P?<[^>]*>').all(group, "
       "group.matches('<(step|total|epoch|samples|loss)>'))",
       "progress.logPattern has a group that nobody reads; step, total, epoch, samples and loss are read"},
      // (What is no regular expression fails.)
      {"!has(self.progress) || ''.matches(self.progress.logPattern) || !''.matches(self.progress.logPattern)",
       "progress.logPattern is no regular expression"},
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
      {"!has(self.stages) || (!has(self.stageMemory) && self.?deviceMap.orValue('Balanced') == 'Balanced')",
       "the stages are given by hand; leave them out, or deviceMap and stageMemory"},
      {"self.?deviceMap.orValue('Balanced') == 'Balanced' || has(self.stages) || has(self.stageMemory)",
       "deviceMap Sequential fills stages up to stageMemory, which is not given"},
  };
}

template <>
CelRules RulesOf(const Contrast*) {
  return {{"self.lower <= self.upper", "lower is more than the largest factor"}};
}

template <>
CelRules RulesOf(const Normalization*) {
  return {{"size(self.mean) == size(self.standardDeviation)", "give one standardDeviation for each mean"}};
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
CelRules RulesOf(const InnerLayer*) {
  CelRules rules = {
      {"self.type != 'Dense' || has(self.units)", "a Dense layer needs units, for example units: 128"},
      {"self.type != 'Conv2D' || (has(self.filters) && has(self.kernelSize))",
       "a Conv2D layer needs filters and kernelSize, for example kernelSize: [3, 3]"},
      {"self.type != 'Activation' || self.activation != 'None'",
       "an Activation layer needs activation, for example activation: ReLU"},
      {"self.type != 'Dropout' || has(self.rate)", "a Dropout layer needs rate, for example rate: 0.5"},
      {"self.type != 'Embedding' || (has(self.inputDim) && has(self.outputDim))",
       "an Embedding layer needs inputDim and outputDim"},
  };
  for (const auto& [field, fallback] :
       {std::pair("kernelInitializer", "GlorotUniform"), {"biasInitializer", "Zeros"}}) {
    const std::vector<std::pair<std::string, std::string>> words = {
        {"$options", std::string("self.") + field + "Options"},
        {"$is", std::string("self.?") + field + ".orValue('" + fallback + "')"}};
    const std::string message = std::string(field) + "Options has a number that the initializer has not";
    rules.push_back(
        {Replaced("!has($options) || ((!has($options.value) || $is == 'Constant') && "
                  "(!has($options.minimum) && !has($options.maximum) || $is == 'RandomUniform') && "
                  "(!has($options.mean) && !has($options.standardDeviation) || "
                  "$is in ['RandomNormal', 'TruncatedNormal']))",
                  words),
         message});
    rules.push_back(
        {Replaced("!has($options) || $is != 'RandomUniform' || $options.?minimum.orValue(-0.05) <= "
                  "$options.?maximum.orValue(0.05)",
                  words),
         std::string(field) + "Options: minimum is more than the maximum"});
  }
  return rules;
}

template <>
CelRules RulesOf(const Layer*) {
  CelRules rules = RulesOf(static_cast<const InnerLayer*>(nullptr));
  rules.push_back({"self.type != 'Residual' || has(self.layers)",
                   "a Residual block adds what its layers make to its inputs; give layers"});
  rules.push_back({"self.type != 'Residual' || self.activation in ['None', 'ReLU']",
                   "a Residual block does the activations None and ReLU"});
  return rules;
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
CelRules RulesOf(const Schedule*) {
  return {{"self.type != 'Exponential' || has(self.decaySteps)", "Exponential needs decaySteps"},
          {"self.type != 'Step' || has(self.boundaries)", "Step needs boundaries"},
          {"self.type != 'Step' || (has(self.learningRates) && has(self.boundaries) && "
           "size(self.learningRates) == size(self.boundaries))",
           "give one of the learningRates for each of the boundaries"},
          {"!has(self.boundaries) || " + Indices(1, kMostBoundaries - 1) +
               ".all(i, i >= size(self.boundaries) || self.boundaries[i - 1] < self.boundaries[i])",
           "boundaries are not in order; give steps that rise"}};
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
      {"!has(self.trainer) || !has(self.roles) || self.roles.all(r, r.name != 'chief' && (!has(r.program) || "
       "r.name == 'evaluator'))",
       "the roles worker and ps run the trainer: no program of their own, and no chief"},
      {"!has(self.trainer) || $type != 'OneDevice' || ($replicas == 1 && $processes <= 1)",
       "OneDevice is one process; set replicas and processesPerReplica to 1, or another strategy.type"},
      {"!has(self.trainer) || $type != 'Mirrored' || $replicas == 1",
       "Mirrored is for one replica; set strategy.type: MultiWorkerMirrored"},
      {"!has(self.trainer) || $type != 'CentralStorage' || $replicas == 1",
       "CentralStorage is for one replica; set strategy.type: ParameterServer"},
      {"!has(self.trainer) || $type != 'CentralStorage' || "
       "self.?strategy.?variables.orValue('Auto') in ['Auto', 'CPU']",
       "CentralStorage has the variables in one place; set strategy.variables: CPU, or leave it out"},
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
      {"!has(self.trainer) || $type != 'Pipeline' || self.trainer.gradientAccumulation == 1",
       "Pipeline cuts its batches itself; leave gradientAccumulation out, or set strategy.microBatches"},
      {"!has(self.trainer) || !has(self.strategy) || !has(self.strategy.stages) || $processes == 0 || "
       "$count % size(self.strategy.stages) == 0",
       "the processes do not make whole pipelines of strategy.stages"},
      {"!has(self.trainer) || $processes == 0 || !($type in ['Mirrored', 'MultiWorkerMirrored']) || "
       "self.trainer.batchSize % $count == 0",
       "the number of processes does not divide trainer.batchSize"},
      {"self.?runPolicy.?minReplicas.orValue(0) <= $replicas", "runPolicy.minReplicas is more than replicas"},
  };
  CelRules spelt;
  for (const CelRule& rule : rules) {
    spelt.push_back({Replaced(rule.rule, SpecWords()), rule.message});
  }
  for (CelRule& rule : TransitionRules()) spelt.push_back(std::move(rule));
  return spelt;
}

}  // namespace lockstep::spec
