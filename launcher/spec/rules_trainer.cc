#include <set>

#include "launcher/spec/enums.h"
#include "launcher/spec/quote.h"
#include "launcher/spec/rules.h"

namespace lockstep::spec {

namespace {

constexpr int64_t kDigitClasses = 10;

void CheckData(const Trainer& trainer, std::vector<Finding>* findings) {
  const Data& data = trainer.data;
  const std::string path = "spec.trainer.data";
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

void CheckModel(const Trainer& trainer, std::vector<Finding>* findings) {
  const Model& model = trainer.model;
  const std::string path = "spec.trainer.model";
  std::set<std::string> names;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const Layer& layer = model.layers[i];
    const std::string layer_path = PathTo(path + ".layers", i);
    if (layer.type == "Dense" && layer.units == 0) {
      findings->push_back({layer_path + ".units",
                           "is missing; a Dense layer needs it, for example units: 128",
                           {layer_path + ".type"}});
    }
    if (!names.insert(layer.name).second) {
      findings->push_back({layer_path + ".name",
                           Quoted(layer.name) + " is a layer before; give every layer its own name",
                           {}});
    }
  }
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
}

}  // namespace lockstep::spec
