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
    if (!job.normalised || last) {
      config.layers.push_back(layer);
      continue;
    }
    layer.activation = Activation::kNone;
    config.layers.push_back(layer);
    config.layers.push_back(
        {.kind = LayerKind::kBatchNormalization, .momentum = 0.9, .synchronised = job.synchronised});
    // Smooth: of so many normalized values one or the other is so near to zero that rounding decides for a
    // ReLU.
    config.layers.push_back({.kind = LayerKind::kActivation, .activation = Activation::kGelu});
    config.layers.push_back({.kind = LayerKind::kDropout, .rate = 0.1});
  }
  return config;
}

}  // namespace

JobRank::JobRank(const Job& job, contract::Store& store, collectives::InProcessSegments* segments, int rank)
    : job_(job), rank_(rank) {
  backend_ = job.backend ? job.backend(rank) : MakeBackend({.threads = 1});
  ModelOptions options{.sample = {job.widths[0]}, .max_local_batch = job.global_batch, .pieces = job.pieces};
  if (job.is_pipeline()) {
    const strategy::PipelineOptions& plan = job.pipeline;
    const int stage = rank % plan.count();
    options.part = plan.stages[static_cast<size_t>(stage)];
    options.passes_in_flight =
        strategy::PassesInFlight(plan.schedule, stage, plan.count(), plan.MicroBatches());
    options.max_local_batch = (job.global_batch + plan.MicroBatches() - 1) / plan.MicroBatches();
  }
  model_ = std::make_unique<Model>(Perceptron(job), options, *backend_);
  optimizer_ = MakeOptimizer(job.optimizer, *backend_);
  if (job.wrap) optimizer_ = job.wrap(rank, std::move(optimizer_));
  strategy_ = strategy::MakeStrategy({.kind = job.kind,
                                      .ops = job.ops,
                                      .shard = job.shard,
                                      .copy_shards = job.copy_shards,
                                      .pipeline = job.pipeline,
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
                                      .device = device(),
                                      .communicators = job.communicators,
                                      .record_steps = job.record_steps,
                                      .segments = segments,
                                      .trace = job.trace ? job.trace(rank) : nullptr});
}

DeviceBackend* JobRank::device() { return dynamic_cast<DeviceBackend*>(backend_.get()); }

strategy::Batch JobRank::Load(int64_t step, const std::vector<int32_t>& labels) {
  int64_t begin = 0, samples = 0;
  for (int s = 0; s <= strategy_->data_share().index; ++s) {
    begin += samples;
    samples = job_.share ? job_.share(s, step) : job_.global_batch / job_.shares();
  }
  // Every sample follows from (step, its place in the global batch) alone.
  inputs_.clear();
  labels_.clear();
  samples_.clear();
  for (int64_t i = begin; i < begin + samples; ++i) {
    std::mt19937 random(static_cast<unsigned>(step * 1000 + i + 1));
    std::normal_distribution<float> noise(0, 1);
    const auto label = static_cast<int32_t>(random() % static_cast<unsigned>(job_.widths.back()));
    labels_.push_back(label);
    samples_.push_back(static_cast<uint32_t>(i));
    for (int64_t f = 0; f < job_.widths[0]; ++f) {
      inputs_.push_back(noise(random) + (f % job_.widths.back() == label ? 2.0f : 0.0f));
    }
  }
  if (!labels.empty()) labels_ = labels;
  strategy::Batch batch{.inputs = inputs_.data(),
                        .labels = labels_.data(),
                        .local_samples = samples,
                        .global_samples = job_.global_batch,
                        .epoch = step,
                        .samples = samples_};
  DeviceBackend* const device = this->device();
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
    strategy::WholeState state;
    state.slots.resize(static_cast<size_t>(rank.optimizer().slots()));
    strategy::Shares shares = rank.strategy().ShareOut(rank.model(), 1);
    shares.rank = 0;  // each is asked for all it has
    rank.strategy().Export(rank.model(), shares, job.is_pipeline() && r > 0 ? nullptr : &state);
    const bool whole = (job.shard == strategy::Shard::kNone && !job.is_pipeline()) || r == 0;
    outcome.parameters[i] = state.parameters;
    if (whole) outcome.slots[i] = state.slots;
    rank.strategy().Finish();
  });
  return outcome;
}

}  // namespace lockstep::testing
