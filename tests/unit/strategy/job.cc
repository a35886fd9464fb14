#include "tests/unit/strategy/job.h"

#include <random>

#include "trainer/backend/device_backend.h"

#ifdef __SANITIZE_THREAD__
// oneDNN is not built with the sanitizer, which therefore misses how its cache of kernels is locked.
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libdnnl.so\nrace:libdnnl.so\n";
}
#endif

namespace lockstep::testing {

using namespace trainer;  // NOLINT(google-build-using-namespace)

namespace {

ModelConfig Perceptron(const Job& job) {
  ModelConfig config;
  for (size_t i = 1; i < job.widths.size(); ++i) {
    const bool last = i + 1 == job.widths.size();
    LayerConfig layer;
    layer.units = job.widths[i];
    layer.activation = last ? Activation::kNone : Activation::kRelu;
    layer.kernel_l2 = job.l2;
    config.layers.push_back(layer);
  }
  return config;
}

}  // namespace

JobRank::JobRank(const Job& job, contract::Store& store, collectives::InProcessSegments* segments, int rank)
    : job_(job), rank_(rank) {
  backend_ = job.backend ? job.backend(rank) : MakeBackend({.threads = 1});
  model_ = std::make_unique<Model>(
      Perceptron(job), ModelOptions{.features = job.widths[0], .max_local_batch = job.global_batch},
      *backend_);
  optimizer_ = MakeOptimizer(job.optimizer, *backend_);
  strategy_ = strategy::MakeStrategy({.kind = job.kind,
                                      .ops = job.ops,
                                      .world = {.rank = rank,
                                                .size = job.size(),
                                                .local_rank = rank % job.local_size,
                                                .local_size = job.local_size,
                                                .group_rank = rank / job.local_size,
                                                .group_size = job.machines},
                                      .store = &store,
                                      .reach = "127.0.0.1",
                                      .setup_timeout = job.timeout,
                                      .collective_timeout = job.timeout,
                                      .device = dynamic_cast<DeviceBackend*>(backend_.get()),
                                      .communicators = job.communicators,
                                      .record_steps = job.record_steps,
                                      .segments = segments});
}

strategy::Batch JobRank::Load(int64_t step, const std::vector<int32_t>& labels) {
  int64_t begin = 0, samples = 0;
  for (int r = 0; r <= rank_; ++r) {
    begin += samples;
    samples = job_.share ? job_.share(r, step) : job_.global_batch / job_.size();
  }
  // Every sample follows from (step, its place in the global batch) alone.
  inputs_.clear();
  labels_.clear();
  for (int64_t i = begin; i < begin + samples; ++i) {
    std::mt19937 random(static_cast<unsigned>(step * 1000 + i + 1));
    std::normal_distribution<float> noise(0, 1);
    const auto label = static_cast<int32_t>(random() % static_cast<unsigned>(job_.widths.back()));
    labels_.push_back(label);
    for (int64_t f = 0; f < job_.widths[0]; ++f) {
      inputs_.push_back(noise(random) + (f % job_.widths.back() == label ? 2.0f : 0.0f));
    }
  }
  if (!labels.empty()) labels_ = labels;
  strategy::Batch batch{.inputs = inputs_.data(),
                        .labels = labels_.data(),
                        .local_samples = samples,
                        .global_samples = job_.global_batch};
  auto* const device = dynamic_cast<DeviceBackend*>(backend_.get());
  if (device == nullptr) return batch;
  constexpr size_t kPlaces = 4;
  for (size_t i = on_device_.size(); i < 2 * kPlaces; ++i) {
    on_device_.emplace_back(device->allocator(),
                            static_cast<size_t>(job_.global_batch * job_.widths[0]) * sizeof(float));
  }
  const size_t place = static_cast<size_t>(step) % kPlaces;
  const Buffer& inputs = on_device_[2 * place];
  const Buffer& targets = on_device_[2 * place + 1];
  if (samples > 0) {
    device->Upload(inputs.data(), inputs_.data(), inputs_.size() * sizeof(float));
    device->Upload(targets.data(), labels_.data(), labels_.size() * sizeof(int32_t));
  }
  batch.inputs = inputs.data();
  batch.labels = targets.data();
  return batch;
}

Outcome Train(const Job& job, int64_t steps,
              const std::function<void(JobRank&, const strategy::StepResult&)>& after) {
  Meeting meeting;
  const auto n = static_cast<size_t>(job.size());
  Outcome outcome{.losses = std::vector<std::vector<double>>(n),
                  .parameters = std::vector<std::vector<float>>(n),
                  .slots = std::vector<std::vector<std::vector<float>>>(n)};
  outcome.thrown = RunRanks(job.size(), [&](int r) {
    JobRank rank(job, meeting, r);
    rank.Setup();
    const auto i = static_cast<size_t>(r);
    for (int64_t step = 0; step < steps; ++step) {
      const strategy::StepResult result = rank.Step(step);
      outcome.losses[i].push_back(result.loss);
      if (after) after(rank, result);
      if (result.stop) break;
    }
    const auto canonical = [&](std::span<const float> flat) {
      std::vector<float> values(static_cast<size_t>(rank.model().canonical_size()));
      rank.model().ExportCanonical(flat.data(), values);
      return values;
    };
    outcome.parameters[i] = canonical(rank.strategy().parameters());
    const int slots = job.optimizer.kind == OptimizerKind::kAdam ? 2 : job.optimizer.momentum > 0 ? 1 : 0;
    for (int s = 0; s < slots; ++s) outcome.slots[i].push_back(canonical(rank.strategy().slot(s)));
    rank.strategy().Finish();
  });
  return outcome;
}

}  // namespace lockstep::testing
