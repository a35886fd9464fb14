#include "trainer/model_setup.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/log.h"
#include "trainer/backend/device_backend.h"
#include "trainer/data/sampler.h"
#include "trainer/error.h"

namespace lockstep::trainer {

namespace {

// Why this device has no instructions for the precision; empty: it has.
std::string Missing(Precision precision, const Backend& backend) {
  if (precision == Precision::kTf32) {
    const auto* device = dynamic_cast<const DeviceBackend*>(&backend);
    if (device == nullptr) return "TF32 is a GPU's, and this process computes on the CPU";
    const int capability = device->identity().capability;
    return capability >= 80 ? ""
                            : "TF32 needs a GPU of compute capability 8.0, and this one has " +
                                  std::to_string(capability / 10) + "." + std::to_string(capability % 10);
  }
  if (precision == Precision::kBFloat16) {
    const Support support = backend.Supports(Op::kDense, DataType::kBFloat16);
    if (!support.supported || !support.native) return support.reason;
  }
  return "";
}

}  // namespace

Precision ChoosePrecision(const Config& config, const Backend& backend, bool reports) {
  const std::string missing = Missing(config.precision, backend);
  if (missing.empty()) return config.precision;
  const std::string name = PrecisionName(config.precision);
  if (!config.soft_placement) {
    throw Unsupported("trainer.precision: " + name + " cannot be had here: " + missing +
                      "; use Float32, or devices.softPlacement: true to fall back on it");
  }
  if (reports) log::Warning("trainer.precision: Float32 instead of " + name + ": " + missing);
  return Precision::kFloat32;
}

namespace {

std::vector<checkpoint::Variable> Described(const std::vector<NamedShape>& variables) {
  std::vector<checkpoint::Variable> described;
  for (const NamedShape& variable : variables) {
    described.push_back({.name = variable.name, .shape = variable.shape.dims()});
  }
  return described;
}

}  // namespace

checkpoint::Signature MakeSignature(const Config& config, Precision precision, const ModelVariables& model,
                                    const Optimizer& optimizer, int64_t training_samples) {
  checkpoint::Signature signature;
  signature.variables = Described(model.variables);
  signature.state = Described(model.state);
  signature.optimizer = config.optimizer.kind == OptimizerKind::kAdam ? "Adam" : "SGD";
  signature.slots = optimizer.slot_names();
  signature.precision = PrecisionName(precision);
  signature.seed = config.seed;
  signature.training_samples = training_samples;
  return signature;
}

int64_t TotalSteps(const Config& config, int64_t training_samples) {
  return data::Sampler({.samples = training_samples, .batch_size = config.batch_size}).batches_per_epoch() *
         config.epochs;
}

OptimizerOptions OptimizerFor(const Config& config, int64_t training_samples) {
  OptimizerOptions options = config.optimizer;
  ScheduleOptions& schedule = options.schedule;
  if (schedule.decay_steps == 0) {
    schedule.decay_steps =
        std::max<int64_t>(1, TotalSteps(config, training_samples) - schedule.warm_up_steps);
  }
  return options;
}

}  // namespace lockstep::trainer
