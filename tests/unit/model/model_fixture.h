#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "trainer/backend/factory.h"
#include "trainer/model/model.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/tensor/bfloat16.h"

namespace lockstep::trainer {

inline ModelConfig Perceptron(const std::vector<int64_t>& units, double l2 = 0) {
  ModelConfig config;
  for (const int64_t width : units) {
    config.layers.push_back({.units = width, .activation = Activation::kRelu, .kernel_l2 = l2});
  }
  config.layers.back().activation = Activation::kNone;
  return config;
}

// Samples and labels of one batch.
struct Batch {
  Batch(int64_t samples, int64_t features, int64_t outputs, uint32_t seed) : n(samples) {
    std::mt19937 engine(seed);
    std::uniform_real_distribution<float> value(-1, 1);
    std::uniform_int_distribution<int32_t> label(0, static_cast<int32_t>(outputs) - 1);
    for (int64_t i = 0; i < n * features; ++i) inputs.push_back(ToFloat(ToBFloat16(value(engine))));
    for (int64_t i = 0; i < n; ++i) labels.push_back(label(engine));
    for (int64_t i = 0; i < n * outputs; ++i) targets.push_back(value(engine));
    for (const float input : inputs) narrow_inputs.push_back(ToBFloat16(input));
  }
  // In the type that the model asks for; the values are the same in each. From sample `first` on.
  const void* InputsFor(const Model& model, int64_t first = 0) const {
    if (model.input_type() == DataType::kBFloat16) return narrow_inputs.data() + first * model.features();
    return inputs.data() + first * model.features();
  }
  const void* LabelsFor(const Model& model, int64_t first = 0) const {
    if (model.loss() == LossKind::kMeanSquaredError) return targets.data() + first * model.outputs();
    return labels.data() + first;
  }

  int64_t n;
  std::vector<float> inputs;
  std::vector<BFloat16> narrow_inputs;
  std::vector<int32_t> labels;
  std::vector<float> targets;
};

// A model with a backend and flat buffers of its own.
struct Trained {
  Trained(const ModelConfig& config, const ModelOptions& options)
      : backend(MakeBackend({.threads = 1})), model(config, options, *backend) {
    const size_t bytes = static_cast<size_t>(model.layout().total) * sizeof(float);
    for (Buffer& buffer : flat) buffer = ZeroedHostBuffer(bytes);
    model.Bind(parameters(), gradients());
    model.Initialize(7);
  }

  std::span<float> parameters() { return flat[0].span<float>(); }
  std::span<float> gradients() { return flat[1].span<float>(); }

  LossResult Step(const Batch& batch, const Model::GradientsReady& ready = {}) {
    return model.TrainStep({.inputs = batch.InputsFor(model),
                            .labels = batch.LabelsFor(model),
                            .n = batch.n,
                            .scale = 1.0f / static_cast<float>(batch.n)},
                           ready);
  }
  void Update(Optimizer& optimizer, int64_t step) {
    const auto ranges = model.layout().update_ranges();
    UpdateBuffers buffers{
        flat[0].as<float>(), flat[1].as<float>(), {flat[2].as<float>(), flat[3].as<float>()}};
    double squared_norm = 0;
    if (optimizer.clips_by_norm()) {
      squared_norm =
          optimizer.SquaredNorm(flat[0].as<float>(), flat[1].as<float>(), 0, model.layout().total, ranges);
      buffers.squared_norm = &squared_norm;
    }
    optimizer.Update(step, buffers, 0, model.layout().total, ranges);
    model.ParametersChanged(0, model.layout().total);
  }
  std::vector<float> Canonical(std::span<const float> from) {
    std::vector<float> values(static_cast<size_t>(model.canonical_size()));
    model.ExportCanonical(from.data(), values);
    return values;
  }

  std::unique_ptr<Backend> backend;
  Model model;
  Buffer flat[4];
};

}  // namespace lockstep::trainer
