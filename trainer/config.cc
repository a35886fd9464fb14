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

data::AugmentationOptions ReadAugmentation(const Node& data) {
  data::AugmentationOptions options;
  if (data.Has("augmentation")) {
    const Node node = data.At("augmentation");
    if (node.Has("crop")) {
      const Node crop = node.At("crop");
      options.crop_height = crop.At("height").As<int64_t>();
      options.crop_width = crop.At("width").As<int64_t>();
      options.padding = crop.Or<int64_t>("padding", 0);
    }
    options.flip = node.Or("flip", options.flip);
    options.brightness = node.Or("brightness", options.brightness);
    if (node.Has("contrast")) {
      options.contrast_lower = node.At("contrast").At("lower").As<double>();
      options.contrast_upper = node.At("contrast").At("upper").As<double>();
    }
    options.whitening = node.Or("whitening", options.whitening);
  }
  if (data.Has("normalization")) {
    options.mean = data.At("normalization").At("mean").As<std::vector<double>>();
    options.deviation = data.At("normalization").At("standardDeviation").As<std::vector<double>>();
  }
  return options;
}

Initializer ReadInitializer(const Node& layer, const char* name, Initializer fallback) {
  if (!layer.Has(name)) return fallback;
  Initializer initializer = ParseInitializer(layer.At(name).As<std::string>());
  const std::string options = std::string(name) + "Options";
  if (!layer.Has(options.c_str())) return initializer;
  const Node node = layer.At(options.c_str());
  initializer.value = node.Or("value", initializer.value);
  initializer.minimum = node.Or("minimum", initializer.minimum);
  initializer.maximum = node.Or("maximum", initializer.maximum);
  initializer.mean = node.Or("mean", initializer.mean);
  initializer.deviation = node.Or("standardDeviation", initializer.deviation);
  return initializer;
}

// Height and width; one number is for both.
void ReadExtents(const Node& layer, const char* key, int64_t (&extents)[2]) {
  if (!layer.Has(key)) return;
  const auto given = layer.At(key).As<std::vector<int64_t>>();
  if (given.empty()) return;
  extents[0] = given.front();
  extents[1] = given.back();
}

LayerConfig ReadLayer(const Node& layer) {
  LayerConfig config;
  config.kind = layer.At("type").OneOf<LayerKind>(
      {{"Dense", LayerKind::kDense},
       {"Conv2D", LayerKind::kConv2D},
       {"MaxPool2D", LayerKind::kMaxPool2D},
       {"AveragePool2D", LayerKind::kAveragePool2D},
       {"GlobalAveragePool2D", LayerKind::kGlobalAveragePool2D},
       {"LocalResponseNormalization", LayerKind::kLocalResponseNormalization},
       {"BatchNormalization", LayerKind::kBatchNormalization},
       {"LayerNormalization", LayerKind::kLayerNormalization},
       {"Activation", LayerKind::kActivation},
       {"Dropout", LayerKind::kDropout},
       {"Flatten", LayerKind::kFlatten},
       {"Embedding", LayerKind::kEmbedding},
       {"Residual", LayerKind::kResidual}});
  config.name = layer.Or<std::string>("name", "");
  config.units = layer.Or("units", config.units);
  config.activation = layer.OneOf<Activation>("activation",
                                              {{"None", Activation::kNone},
                                               {"ReLU", Activation::kRelu},
                                               {"GELU", Activation::kGelu},
                                               {"Softmax", Activation::kSoftmax}},
                                              config.activation);
  config.use_bias = layer.Or("useBias", config.use_bias);
  config.kernel_initializer = ReadInitializer(layer, "kernelInitializer", config.kernel_initializer);
  config.bias_initializer = ReadInitializer(layer, "biasInitializer", config.bias_initializer);
  if (layer.Has("kernelRegularizer")) config.kernel_l2 = layer.At("kernelRegularizer").Or<double>("l2", 0);
  config.filters = layer.Or("filters", config.filters);
  ReadExtents(layer, "kernelSize", config.kernel_size);
  ReadExtents(layer, "poolSize", config.pool_size);
  ReadExtents(layer, "strides", config.strides);
  config.padding =
      layer.OneOf<Padding>("padding", {{"Valid", Padding::kValid}, {"Same", Padding::kSame}}, config.padding);
  config.depth_radius = layer.Or("depthRadius", config.depth_radius);
  config.response_bias = layer.Or("bias", config.response_bias);
  config.alpha = layer.Or("alpha", config.alpha);
  config.beta = layer.Or("beta", config.beta);
  config.momentum = layer.Or("momentum", config.momentum);
  config.epsilon = layer.Or("epsilon", config.epsilon);
  config.center = layer.Or("center", config.center);
  config.scale = layer.Or("scale", config.scale);
  config.synchronised = layer.Or("synchronised", config.synchronised);
  config.rate = layer.Or("rate", config.rate);
  config.input_dim = layer.Or("inputDim", config.input_dim);
  config.output_dim = layer.Or("outputDim", config.output_dim);
  if (layer.Has("layers")) {
    for (const Node& inner : layer.At("layers").Items()) config.body.push_back(ReadLayer(inner));
  }
  if (layer.Has("shortcut")) {
    for (const Node& inner : layer.At("shortcut").Items()) config.shortcut.push_back(ReadLayer(inner));
  }
  return config;
}

ModelConfig ReadModel(const Node& model) {
  ModelConfig config;
  for (const Node& layer : model.At("layers").Items()) config.layers.push_back(ReadLayer(layer));
  config.loss =
      model.OneOf<LossKind>("loss",
                            {{"SparseCategoricalCrossentropy", LossKind::kSparseCategoricalCrossentropy},
                             {"MeanSquaredError", LossKind::kMeanSquaredError}},
                            config.loss);
  config.label_smoothing = model.Or("labelSmoothing", config.label_smoothing);
  if (model.Has("metrics")) {
    for (const Node& metric : model.At("metrics").Items()) {
      config.metrics.push_back(metric.OneOf<Metric>({{"Accuracy", Metric::kAccuracy}}));
    }
  }
  return config;
}

ScheduleOptions ReadSchedule(const Node& schedule) {
  ScheduleOptions options;
  options.kind = schedule.OneOf<ScheduleKind>("type",
                                              {{"Constant", ScheduleKind::kConstant},
                                               {"Step", ScheduleKind::kStep},
                                               {"Exponential", ScheduleKind::kExponential},
                                               {"Cosine", ScheduleKind::kCosine}},
                                              options.kind);
  options.warm_up_steps = schedule.Or("warmUpSteps", options.warm_up_steps);
  options.warm_up_from = schedule.Or("warmUpFrom", options.warm_up_from);
  options.boundaries = schedule.Or("boundaries", options.boundaries);
  options.learning_rates = schedule.Or("learningRates", options.learning_rates);
  options.decay_steps = schedule.Or("decaySteps", options.decay_steps);
  options.decay_rate = schedule.Or("decayRate", options.decay_rate);
  options.staircase = schedule.Or("staircase", options.staircase);
  options.final_learning_rate = schedule.Or("finalLearningRate", options.final_learning_rate);
  return options;
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
  if (optimizer.Has("schedule")) options.schedule = ReadSchedule(optimizer.At("schedule"));
  options.weight_decay = optimizer.Or("weightDecay", options.weight_decay);
  options.clip_value = optimizer.Or("clipValue", options.clip_value);
  options.global_clip_norm = optimizer.Or("globalClipNorm", options.global_clip_norm);
  if (optimizer.Has("movingAverage")) {
    options.average_momentum = optimizer.At("movingAverage").At("momentum").As<double>();
  }
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

ServedConfig ReadServed(const Node& strategy) {
  ServedConfig served;
  served.synchronous = strategy.Or("synchronous", served.synchronous);
  if (strategy.Has("waitFor")) served.wait_for = strategy.At("waitFor").As<int>();
  if (strategy.Has("maxGradientAge")) {
    served.max_gradient_age = strategy.At("maxGradientAge").As<int64_t>();
  }
  return served;
}

strategy::PipelineOptions ReadPipeline(const Node& node) {
  strategy::PipelineOptions pipeline;
  if (node.Has("stages")) {
    for (const Node& stage : node.At("stages").Items()) {
      pipeline.stages.push_back(
          {.first = stage.At("first").As<size_t>(), .last = stage.At("last").As<size_t>()});
    }
  }
  pipeline.map = node.OneOf<strategy::DeviceMap>(
      "deviceMap",
      {{"Balanced", strategy::DeviceMap::kBalanced}, {"Sequential", strategy::DeviceMap::kSequential}},
      pipeline.map);
  pipeline.stage_memory = node.Or("stageMemory", pipeline.stage_memory);
  pipeline.micro_batches = node.Or("microBatches", pipeline.micro_batches);
  pipeline.schedule = node.OneOf<strategy::PipelineSchedule>(
      "schedule",
      {{"GPipe", strategy::PipelineSchedule::kGPipe},
       {"OneForwardOneBackward", strategy::PipelineSchedule::kOneForwardOneBackward}},
      pipeline.schedule);
  return pipeline;
}

Config ReadSpec(const Node& spec) {
  const Node trainer = spec.At("trainer");
  Config config;
  config.model = ReadModel(trainer.At("model"));
  if (trainer.Has("data")) {
    config.data = ReadData(trainer.At("data"));
    config.augmentation = ReadAugmentation(trainer.At("data"));
  }
  config.data.targets =
      config.model.loss == LossKind::kMeanSquaredError ? data::TargetType::kValue : data::TargetType::kLabel;
  const Node optimizer = trainer.At("optimizer");
  config.optimizer = ReadOptimizer(optimizer);
  config.evaluate_average =
      optimizer.Has("movingAverage") && optimizer.At("movingAverage").Or("evaluate", true);
  config.batch_size = trainer.Or("batchSize", config.batch_size);
  config.gradient_accumulation = trainer.Or("gradientAccumulation", config.gradient_accumulation);
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
    if (node.Or<std::string>("type", "") == "ParameterServer") {
      config.served = ReadServed(node);
    } else {
      config.strategy =
          node.OneOf<strategy::Kind>("type",
                                     {{"OneDevice", strategy::Kind::kOneDevice},
                                      {"Mirrored", strategy::Kind::kMirrored},
                                      {"MultiWorkerMirrored", strategy::Kind::kMultiWorkerMirrored},
                                      {"CentralStorage", strategy::Kind::kCentralStorage},
                                      {"Pipeline", strategy::Kind::kPipeline}},
                                     config.strategy);
    }
    config.pipeline = ReadPipeline(node);
    config.variables = node.OneOf<VariablePlacement>("variables",
                                                     {{"Auto", VariablePlacement::kAuto},
                                                      {"CPU", VariablePlacement::kCpu},
                                                      {"RoundRobin", VariablePlacement::kRoundRobin},
                                                      {"LeastLoaded", VariablePlacement::kLeastLoaded}},
                                                     config.variables);
    config.scaling = node.OneOf<Scaling>(
        "scaling", {{"KeepGlobalBatch", Scaling::kKeepGlobalBatch}, {"Linear", Scaling::kLinear}},
        config.scaling);
    config.shard = node.OneOf<strategy::Shard>("shard",
                                               {{"None", strategy::Shard::kNone},
                                                {"Optimizer", strategy::Shard::kOptimizer},
                                                {"Gradients", strategy::Shard::kGradients}},
                                               config.shard);
    config.copy_shards = node.Or("copyShards", config.copy_shards);
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
  config.replicas = role.Or("replicas", config.replicas);
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
