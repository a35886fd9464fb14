#include "launcher/spec/defaults.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "common/lower_case.h"

namespace lockstep::spec {

namespace {

constexpr int64_t kDigitsSamples = 50'000;
constexpr int64_t kDigitsTestSamples = 10'000;

const Role* Worker(const TrainingJob& job) {
  const auto worker = std::find_if(job.roles.begin(), job.roles.end(),
                                   [](const Role& role) { return role.name == "worker"; });
  return worker == job.roles.end() ? nullptr : &*worker;
}

// Keras names a layer after its class in snake case, and counts from the second on. Names that a manifest
// gives are left out.
void NameLayers(auto& layers) {
  std::set<std::string> taken;
  for (const auto& layer : layers) taken.insert(layer.name);
  std::map<std::string, int> next;
  for (auto& layer : layers) {
    if (!layer.name.empty()) continue;
    std::string base;
    for (size_t i = 0; i < layer.type.size(); ++i) {
      const char c = layer.type[i];
      const bool upper = std::isupper(static_cast<unsigned char>(c)) != 0;
      const bool after_lower = i > 0 && std::islower(static_cast<unsigned char>(layer.type[i - 1])) != 0;
      if (upper && after_lower) base += '_';
      base += LowerCase(c);
    }
    do {
      const int number = next[base]++;
      layer.name = number == 0 ? base : base + "_" + std::to_string(number);
    } while (!taken.insert(layer.name).second);
  }
}

}  // namespace

void SetDefaults(TrainingJob& job, const std::function<bool(std::string_view path)>& given) {
  // One role that brings its own program is a job with that program.
  if (job.roles.size() == 1 && job.roles[0].program && !job.program && !job.trainer) {
    job.program = std::exchange(job.roles[0].program, std::nullopt);
  }
  const Role* worker = Worker(job);
  if (!given("spec.strategy.type") && worker != nullptr && worker->replicas > 1) {
    job.strategy.type = StrategyType::kMultiWorkerMirrored;
  }
  if (!job.trainer) return;
  Trainer& trainer = *job.trainer;
  if (trainer.data.format == DataFormat::kDigits) {
    if (trainer.data.samples == 0) trainer.data.samples = kDigitsSamples;
    if (trainer.data.test_samples == 0) trainer.data.test_samples = kDigitsTestSamples;
  }
  if (!given("spec.trainer.optimizer.learningRate")) {
    trainer.optimizer.learning_rate = trainer.optimizer.type == OptimizerType::kAdam ? 0.001 : 0.01;
  }
  NameLayers(trainer.model.layers);
  for (Layer& layer : trainer.model.layers) {
    NameLayers(layer.layers);
    NameLayers(layer.shortcut);
  }
}

}  // namespace lockstep::spec
