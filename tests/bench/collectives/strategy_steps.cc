#include "tests/bench/collectives/strategy_steps.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "tests/unit/collectives/fork_store.h"
#include "tests/unit/collectives/processes.h"
#include "trainer/backend/factory.h"

namespace lockstep::bench {
namespace {

using namespace trainer;  // NOLINT(google-build-using-namespace)
using Clock = std::chrono::steady_clock;

constexpr int64_t kGlobalBatch = 256;
constexpr int64_t kFeatures = 784;
constexpr int kRounds = 10;
constexpr int kSteps = 100;  // a round

ModelConfig Perceptron() {
  ModelConfig config;
  for (const int64_t units : {256, 256, 10}) {
    LayerConfig layer;
    layer.units = units;
    layer.activation = units == 10 ? Activation::kNone : Activation::kRelu;
    config.layers.push_back(layer);
  }
  return config;
}

StepTimes RunRank(int rank, int ranks, strategy::Kind kind, strategy::CrossDeviceOps ops,
                  contract::Store& store) {
  const int64_t samples = kGlobalBatch / ranks;
  const auto backend = MakeBackend({.threads = 1});
  Model model(Perceptron(), {.sample = {kFeatures}, .max_local_batch = samples}, *backend);
  const auto optimizer = MakeOptimizer({.kind = OptimizerKind::kAdam, .learning_rate = 0.001}, *backend);
  const auto job =
      strategy::MakeStrategy({.kind = kind,
                              .ops = ops,
                              .world = {.rank = rank, .size = ranks, .local_rank = rank, .local_size = ranks},
                              .store = &store,
                              .reach = "127.0.0.1"});
  job->Setup(model, *optimizer, 1);
  std::mt19937 random(static_cast<unsigned>(rank + 1));
  std::uniform_real_distribution<float> value(0, 1);
  std::vector<float> inputs(static_cast<size_t>(samples * kFeatures));
  std::vector<int32_t> labels(static_cast<size_t>(samples));
  for (float& x : inputs) x = value(random);
  for (int32_t& label : labels) label = static_cast<int32_t>(random() % 10);

  StepTimes best;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = Clock::now();
    double collective = 0;
    for (int step = 0; step < kSteps; ++step) {
      collective += job->TrainStep({.inputs = inputs.data(),
                                    .labels = labels.data(),
                                    .local_samples = samples,
                                    .global_samples = kGlobalBatch})
                        .collective_seconds;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count() / kSteps;
    if (round > 0 && (best.step_seconds == 0 || seconds < best.step_seconds)) {
      best = {.images_per_second = kGlobalBatch / seconds,
              .step_seconds = seconds,
              .collective_seconds = collective / kSteps};
    }
  }
  job->Finish();
  return best;
}

}  // namespace

StepTimes MeasureSteps(int ranks, strategy::Kind kind, strategy::CrossDeviceOps ops) {
  testing::ForkStore store;
  void* memory =
      ::mmap(nullptr, sizeof(StepTimes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* result = new (memory) StepTimes;
  {
    // (No thread of this process may use OpenMP before it forks: the children would inherit a half of its
    // pool.)
    testing::Processes processes(0, ranks, [&](int rank) {
      const StepTimes times = RunRank(rank, ranks, kind, ops, store);
      if (rank == 0) *result = times;
    });
    for (int r = 0; r < ranks; ++r) processes.Wait(static_cast<size_t>(r));
  }
  const StepTimes times = *result;
  ::munmap(memory, sizeof(StepTimes));
  return times;
}

}  // namespace lockstep::bench
