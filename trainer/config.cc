#include "trainer/config.h"

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/device_name.h"
#include "trainer/error.h"

namespace lockstep::trainer {

namespace {

using Json = nlohmann::json;

// A part of the manifest and where it stands, so that an error can name the field.
class Node {
 public:
  Node(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  bool Has(const char* key) const {
    return json_.is_object() && json_.contains(key) && !json_[key].is_null();
  }
  Node At(const char* key) const {
    if (!Has(key)) Fail(std::string(key) + " is missing");
    return {json_[key], path_ + "." + key};
  }
  std::vector<Node> Items() const {
    std::vector<Node> items;
    for (size_t i = 0; i < json_.size(); ++i)
      items.emplace_back(json_[i], path_ + "[" + std::to_string(i) + "]");
    return items;
  }

  template <typename T>
  T As() const {
    try {
      return json_.get<T>();
    } catch (const Json::exception&) {
      Fail("is of the wrong type");
    }
  }
  template <typename T>
  T Or(const char* key, T fallback) const {
    return Has(key) ? At(key).As<T>() : fallback;
  }
  // The value that the name stands for; a name that the table lacks is known to the manifest, not to us.
  template <typename T>
  T OneOf(const std::map<std::string, T>& names) const {
    const auto it = names.find(As<std::string>());
    if (it != names.end()) return it->second;
    throw Unsupported(path_ + ": the trainer has no " + As<std::string>());
  }
  template <typename T>
  T OneOf(const char* key, const std::map<std::string, T>& names, T fallback) const {
    return Has(key) ? At(key).OneOf(names) : fallback;
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    throw Error(contract::kExitUsage, "BadConfig", path_ + ": " + what);
  }

  const Json& json_;
  std::string path_;
};

data::SourceOptions ReadData(const Node& data) {
  using data::Format;
  data::SourceOptions options;
  options.format = data.OneOf<Format>("format",
                                      {{"Digits", Format::kDigits},
                                       {"IDX", Format::kIdx},
                                       {"CIFAR10", Format::kCifar10},
                                       {"CSV", Format::kCsv}},
                                      options.format);
  options.path = data.Or<std::string>("path", "");
  options.validation_samples = data.Or<int64_t>("validationSamples", 0);
  options.samples = data.Or<int64_t>("samples", 0);
  options.test_samples = data.Or<int64_t>("testSamples", 0);
  return options;
}

ModelConfig ReadModel(const Node& model) {
  ModelConfig config;
  for (const Node& layer : model.At("layers").Items()) {
    config.layers.push_back({
        .kind = layer.At("type").OneOf<LayerKind>({{"Dense", LayerKind::kDense}}),
        .name = layer.Or<std::string>("name", ""),
        .units = layer.At("units").As<int64_t>(),
        .activation = layer.OneOf<Activation>(
            "activation", {{"None", Activation::kNone}, {"ReLU", Activation::kRelu}}, Activation::kNone),
        .use_bias = layer.Or<bool>("useBias", true),
        .kernel_initializer = layer.OneOf<Initializer>(
            "kernelInitializer",
            {{"GlorotUniform", Initializer::kGlorotUniform}, {"Zeros", Initializer::kZeros}},
            Initializer::kGlorotUniform),
        .kernel_l2 = layer.Has("kernelRegularizer") ? layer.At("kernelRegularizer").Or<double>("l2", 0) : 0,
    });
  }
  config.loss =
      model.OneOf<LossKind>("loss",
                            {{"SparseCategoricalCrossentropy", LossKind::kSparseCategoricalCrossentropy},
                             {"MeanSquaredError", LossKind::kMeanSquaredError}},
                            config.loss);
  if (model.Has("metrics")) {
    for (const Node& metric : model.At("metrics").Items()) {
      config.metrics.push_back(metric.OneOf<Metric>({{"Accuracy", Metric::kAccuracy}}));
    }
  }
  return config;
}

OptimizerOptions ReadOptimizer(const Node& optimizer) {
  OptimizerOptions options;
  options.kind = optimizer.At("type").OneOf<OptimizerKind>(
      {{"SGD", OptimizerKind::kSgd}, {"Adam", OptimizerKind::kAdam}});
  options.learning_rate = optimizer.Or("learningRate", options.learning_rate);
  options.momentum = optimizer.Or("momentum", options.momentum);
  options.nesterov = optimizer.Or("nesterov", options.nesterov);
  options.beta1 = optimizer.Or("beta1", options.beta1);
  options.beta2 = optimizer.Or("beta2", options.beta2);
  options.epsilon = optimizer.Or("epsilon", options.epsilon);
  return options;
}

std::vector<PlacementRule> ReadPlacement(const Node& placement) {
  std::vector<PlacementRule> rules;
  if (!placement.Has("layers")) return rules;
  for (const Node& rule : placement.At("layers").Items()) {
    const Result<DeviceName> device = ParseDeviceName(rule.At("device").As<std::string>());
    if (!device.ok()) throw Error(contract::kExitUsage, "BadConfig", device.status().message());
    rules.push_back({.match = rule.At("match").As<std::string>(), .device = device->Short()});
  }
  return rules;
}

Config ReadSpec(const Node& spec) {
  const Node trainer = spec.At("trainer");
  Config config;
  config.model = ReadModel(trainer.At("model"));
  if (trainer.Has("data")) config.data = ReadData(trainer.At("data"));
  config.data.targets =
      config.model.loss == LossKind::kMeanSquaredError ? data::TargetType::kValue : data::TargetType::kLabel;
  config.optimizer = ReadOptimizer(trainer.At("optimizer"));
  config.batch_size = trainer.Or("batchSize", config.batch_size);
  config.epochs = trainer.Or("epochs", config.epochs);
  config.seed = trainer.Or("seed", config.seed);
  config.precision = trainer.OneOf<Precision>(
      "precision",
      {{"Float32", Precision::kFloat32}, {"TF32", Precision::kTf32}, {"BFloat16", Precision::kBFloat16}},
      config.precision);
  if (trainer.Has("checkpoint")) {
    const Node checkpoint = trainer.At("checkpoint");
    config.checkpoint = {.directory = checkpoint.At("directory").As<std::string>(),
                         .every = checkpoint.Or<int64_t>("every", 0),
                         .keep = checkpoint.Or<int>("keep", 3)};
  }
  if (spec.Has("strategy")) {
    const Node node = spec.At("strategy");
    config.strategy =
        node.OneOf<strategy::Kind>("type",
                                   {{"OneDevice", strategy::Kind::kOneDevice},
                                    {"Mirrored", strategy::Kind::kMirrored},
                                    {"MultiWorkerMirrored", strategy::Kind::kMultiWorkerMirrored}},
                                   config.strategy);
    config.variables = node.OneOf<VariablePlacement>("variables",
                                                     {{"Auto", VariablePlacement::kAuto},
                                                      {"CPU", VariablePlacement::kCpu},
                                                      {"RoundRobin", VariablePlacement::kRoundRobin},
                                                      {"LeastLoaded", VariablePlacement::kLeastLoaded}},
                                                     config.variables);
    config.cross_device_ops = node.OneOf<strategy::CrossDeviceOps>(
        "crossDeviceOps",
        {{"Auto", strategy::CrossDeviceOps::kAuto},
         {"SharedMemory", strategy::CrossDeviceOps::kSharedMemory},
         {"Gloo", strategy::CrossDeviceOps::kGloo},
         {"NCCL", strategy::CrossDeviceOps::kNccl},
         {"HierarchicalCopy", strategy::CrossDeviceOps::kHierarchicalCopy},
         {"ReductionToOneDevice", strategy::CrossDeviceOps::kReductionToOneDevice}},
        config.cross_device_ops);
  }
  if (spec.Has("placement")) config.placement = ReadPlacement(spec.At("placement"));
  const Node role = spec.Has("roles") ? spec.At("roles").Items().front() : spec;
  if (role.Has("devices")) {
    config.soft_placement = role.At("devices").Or("softPlacement", false);
    config.log_placement = role.At("devices").Or("logPlacement", false);
  }
  return config;
}

}  // namespace

Config ReadConfig(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(contract::kExitUsage, "BadConfig", path + ": cannot be opened");
  const Json manifest = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object()) throw Error(contract::kExitUsage, "BadConfig", path + ": is not a JSON object");
  return ReadSpec(Node(manifest, "manifest").At("spec"));
}

}  // namespace lockstep::trainer
