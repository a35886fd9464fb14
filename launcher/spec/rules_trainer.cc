#include <algorithm>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <string_view>

#include "launcher/spec/enums.h"
#include "launcher/spec/quote.h"
#include "launcher/spec/rules.h"

namespace lockstep::spec {

namespace {

constexpr int64_t kDigitClasses = 10;

void CheckImages(const Data& data, std::vector<Finding>* findings) {
  const std::string path = "spec.trainer.data";
  if (data.augmentation && data.augmentation->contrast &&
      data.augmentation->contrast->lower > data.augmentation->contrast->upper) {
    findings->push_back({path + ".augmentation.contrast.lower",
                         "is more than the largest factor",
                         {path + ".augmentation.contrast.upper"}});
  }
  if (!data.normalization) return;
  const size_t means = data.normalization->mean.size(),
               deviations = data.normalization->standard_deviation.size();
  if (means != deviations && means > 0 && deviations > 0) {
    findings->push_back({path + ".normalization.standardDeviation",
                         std::to_string(deviations) + " for " + std::to_string(means) +
                             (means == 1 ? " mean" : " means") + "; give one for each",
                         {path + ".normalization.mean"}});
  }
}

void CheckData(const Trainer& trainer, std::vector<Finding>* findings) {
  const Data& data = trainer.data;
  const std::string path = "spec.trainer.data";
  CheckImages(data, findings);
  if (data.format != DataFormat::kDigits) {
    if (data.path.empty()) {
      findings->push_back({path + ".path",
                           "is missing; format " + std::string(Name(data.format)) + " reads it from a " +
                               (data.format == DataFormat::kCsv ? "file" : "folder"),
                           {path + ".format"}});
    }
    return;
  }
  const int64_t training = data.samples - data.validation_samples;
  if (training < 1) {
    findings->push_back({path + ".validationSamples",
                         "all " + std::to_string(data.samples) + " samples are for validation; at most " +
                             std::to_string(data.samples - 1),
                         {path + ".samples"}});
  } else if (trainer.batch_size > training) {
    findings->push_back({"spec.trainer.batchSize",
                         std::to_string(trainer.batch_size) + " is more than the " +
                             std::to_string(training) + " training samples; at most " +
                             std::to_string(training),
                         {path + ".samples", path + ".validationSamples"}});
  }
}

// That an initializer has no numbers but its own.
void CheckInitializer(const std::string& name, const std::optional<InitializerOptions>& options,
                      const std::string& path, std::vector<Finding>* findings) {
  if (!options) return;
  const auto only = [&](const std::optional<double>& value, const std::string& field,
                        std::initializer_list<std::string_view> of) {
    if (!value || std::find(of.begin(), of.end(), name) != of.end()) return;
    std::string words;
    for (const std::string_view word : of) words += (words.empty() ? "" : " or ") + std::string(word);
    findings->push_back(
        {path + "Options." + field, name + " has none; leave it out, or use it with " + words, {path}});
  };
  only(options->value, "value", {"Constant"});
  only(options->minimum, "minimum", {"RandomUniform"});
  only(options->maximum, "maximum", {"RandomUniform"});
  only(options->mean, "mean", {"RandomNormal", "TruncatedNormal"});
  only(options->standard_deviation, "standardDeviation", {"RandomNormal", "TruncatedNormal"});
  if (name == "RandomUniform" && options->minimum.value_or(-0.05) > options->maximum.value_or(0.05)) {
    findings->push_back({path + "Options.minimum", "is more than the maximum", {path + "Options.maximum"}});
  }
}

// What each kind of layer cannot do without.
void CheckLayer(const InnerLayer& layer, const std::string& path, std::vector<Finding>* findings) {
  const auto need = [&](bool given, const char* type, const char* field, const char* example) {
    if (layer.type != type || given) return;
    findings->push_back({path + "." + field,
                         std::string("is missing; ") + (type[0] == 'A' || type[0] == 'E' ? "an " : "a ") +
                             type + " layer needs it, for example " + field + ": " + example,
                         {path + ".type"}});
  };
  need(layer.units > 0, "Dense", "units", "128");
  need(layer.filters > 0, "Conv2D", "filters", "64");
  need(!layer.kernel_size.empty(), "Conv2D", "kernelSize", "[3, 3]");
  need(layer.activation != Activation::kNone, "Activation", "activation", "ReLU");
  need(layer.rate.has_value(), "Dropout", "rate", "0.5");
  need(layer.input_dim > 0, "Embedding", "inputDim", "10000");
  need(layer.output_dim > 0, "Embedding", "outputDim", "64");
  CheckInitializer(layer.kernel_initializer, layer.kernel_initializer_options, path + ".kernelInitializer",
                   findings);
  CheckInitializer(layer.bias_initializer, layer.bias_initializer_options, path + ".biasInitializer",
                   findings);
}

void CheckNames(const auto& layers, const std::string& path, std::vector<Finding>* findings) {
  std::set<std::string> names;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (names.insert(layers[i].name).second) continue;
    findings->push_back({PathTo(path, i) + ".name",
                         Quoted(layers[i].name) + " is a layer before; give every layer its own name",
                         {}});
  }
}

void CheckResidual(const Layer& layer, const std::string& path, std::vector<Finding>* findings) {
  if (layer.type != "Residual") return;
  if (layer.layers.empty()) {
    findings->push_back({path + ".layers",
                         "is missing; a Residual block adds what its layers make to its inputs",
                         {path + ".type"}});
  }
  if (layer.activation != Activation::kNone && layer.activation != Activation::kRelu) {
    findings->push_back({path + ".activation",
                         std::string(Name(layer.activation)) +
                             " is not done by a Residual block; None and ReLU "
                             "are",
                         {path + ".type"}});
  }
  for (const auto& [name, inner] : {std::pair{".layers", &layer.layers}, {".shortcut", &layer.shortcut}}) {
    for (size_t i = 0; i < inner->size(); ++i) CheckLayer((*inner)[i], PathTo(path + name, i), findings);
    CheckNames(*inner, path + name, findings);
  }
}

void CheckModel(const Trainer& trainer, std::vector<Finding>* findings) {
  const Model& model = trainer.model;
  const std::string path = "spec.trainer.model";
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const std::string layer_path = PathTo(path + ".layers", i);
    CheckLayer(model.layers[i], layer_path, findings);
    CheckResidual(model.layers[i], layer_path, findings);
  }
  CheckNames(model.layers, path + ".layers", findings);
  const bool regression = model.loss == Loss::kMeanSquaredError;
  for (size_t i = 0; i < model.metrics.size(); ++i) {
    if (!regression || model.metrics[i] != Metric::kAccuracy) continue;
    findings->push_back({PathTo(path + ".metrics", i),
                         "Accuracy counts right classes, and MeanSquaredError has none; leave it out",
                         {path + ".loss"}});
  }
  if (model.layers.empty() || model.layers.back().type != "Dense") return;
  const int64_t outputs = model.layers.back().units;
  const std::string units = PathTo(path + ".layers", model.layers.size() - 1) + ".units";
  if (outputs == 0) return;
  if (regression && outputs != 1) {
    findings->push_back({units,
                         "MeanSquaredError compares one output with the label; the last layer needs units: 1",
                         {path + ".loss"}});
  }
  if (!regression && outputs == 1) {
    findings->push_back(
        {units,
         "one output is one class only; give the last layer a unit for each class, or set loss: "
         "MeanSquaredError",
         {path + ".loss"}});
  } else if (!regression && outputs < kDigitClasses &&
             (trainer.data.format == DataFormat::kDigits || trainer.data.format == DataFormat::kCifar10)) {
    findings->push_back(
        {units,
         std::string(Name(trainer.data.format)) + " has 10 classes; the last layer needs units: 10",
         {path + ".loss", "spec.trainer.data.format"}});
  }
}

void CheckBatch(const TrainingJob& job, const Trainer& trainer, std::vector<Finding>* findings) {
  const Role* worker = WorkerOf(job);
  if (worker == nullptr || !worker->processes_per_replica) return;
  const StrategyType type = job.strategy.type;
  // Only these split a batch over all processes.
  if (type != StrategyType::kMirrored && type != StrategyType::kMultiWorkerMirrored) return;
  const Status divides =
      CheckBatchDivides(trainer.batch_size, int64_t{worker->replicas} * *worker->processes_per_replica);
  if (divides.ok()) return;
  const std::string path = PathOfWorker(job);
  findings->push_back({"spec.trainer.batchSize",
                       divides.message(),
                       {path + ".replicas", path + ".processesPerReplica", "spec.strategy.type"}});
}

void CheckSchedule(const Schedule& schedule, std::vector<Finding>* findings) {
  const std::string path = "spec.trainer.optimizer.schedule";
  const auto find = [&](const std::string& field, const std::string& what) {
    findings->push_back({path + "." + field, what, {path + ".type"}});
  };
  if (schedule.type == ScheduleType::kExponential && !schedule.decay_steps) {
    find("decaySteps", "is missing; Exponential needs it, for example decaySteps: 1000");
  }
  if (schedule.type != ScheduleType::kStep) return;
  if (schedule.boundaries.empty()) {
    return find("boundaries", "is missing; Step needs it, for example boundaries: [1000, 2000]");
  }
  if (std::adjacent_find(schedule.boundaries.begin(), schedule.boundaries.end(), std::greater_equal<>()) !=
      schedule.boundaries.end()) {
    find("boundaries", "are not in order; give steps that rise");
  }
  if (schedule.learning_rates.size() != schedule.boundaries.size()) {
    find("learningRates", std::to_string(schedule.learning_rates.size()) + " for " +
                              std::to_string(schedule.boundaries.size()) + " boundaries; give one for each");
  }
}

}  // namespace

void CheckTrainer(const TrainingJob& job, const Trainer& trainer, std::vector<Finding>* findings) {
  CheckData(trainer, findings);
  CheckModel(trainer, findings);
  CheckBatch(job, trainer, findings);
  if (trainer.optimizer.nesterov && trainer.optimizer.momentum == 0) {
    findings->push_back({"spec.trainer.optimizer.nesterov",
                         "Nesterov's momentum needs momentum; set it, for example momentum: 0.9",
                         {"spec.trainer.optimizer.momentum"}});
  }
  CheckSchedule(trainer.optimizer.schedule, findings);
  if (trainer.gradient_accumulation > 1 && job.strategy.type == StrategyType::kPipeline) {
    findings->push_back({"spec.trainer.gradientAccumulation",
                         "Pipeline cuts its batches itself; leave it out, or set strategy.microBatches",
                         {"spec.strategy.type"}});
  }
}

}  // namespace lockstep::spec
