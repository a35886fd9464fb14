#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/backend/backend.h"
#include "trainer/model/model_config.h"
#include "trainer/tensor/parameter_layout.h"

// model/ is a stack of layers and a loss: it lays the parameters out flat, holds the activations, and runs a
// training step up to the gradients. It talks to no other process and updates nothing; strategy/ does both.
namespace lockstep::trainer {

struct ModelOptions {
  int64_t features = 0;         // of an input sample
  int64_t max_local_batch = 0;  // of this process
  Precision precision = Precision::kFloat32;
  // Where a layer computes, by its name, if not on the model's own backend; see layers/placed.h. Outlives the
  // model.
  std::function<Backend&(const std::string& layer)> place;
};

// One process's copy. For one thread at a time. After the first step with a batch size, steps of that size
// allocate nothing. The same inputs on the same machine with the same number of threads give the same bits.
class Model {
 public:
  // Throws BadModel (what is wrong, which layer) and Unsupported (the backend lacks a kernel: see
  // Backend::Supports, which tells before). The backend outlives the model.
  Model(const ModelConfig& config, const ModelOptions& options, Backend& backend);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ParameterLayout& layout() const;
  DataType input_type() const;  // of a batch's inputs: Float32, or BFloat16 with that precision
  int64_t features() const;
  int64_t outputs() const;
  LossKind loss() const;
  int64_t training_flops() const;  // a sample, forward and backward; for metrics
  // Whether a step on a device only enqueues: no layer is placed elsewhere.
  bool recordable() const;

  // Where parameters and gradients are from now on: layout().total floats each, in the backend's memory,
  // 64-byte aligned, zeroed before their first use (padding must be zero) and outliving the model or the next
  // Bind. Several processes may share the parameters: the model writes them in Initialize only.
  void Bind(std::span<float> parameters, std::span<float> gradients);

  // Writes the initial parameters, drawn from (seed, index of the variable in the order of layers).
  void Initialize(uint64_t seed);

  // Elements [begin, end) of the parameters were written by this process or another: derived copies are made
  // anew. To be called for all changed ranges before the next pass, in any pieces; after Bind or
  // ImportCanonical for the whole. (Initialize does it itself.)
  void ParametersChanged(int64_t begin, int64_t end);

  // Derived copies that an optimizer of the same backend writes along with the parameters, if it is given
  // them (UpdateBuffers::rounded). ParametersUpdated then takes the place of ParametersChanged, and makes
  // anew the other copies only.
  std::span<const RoundedCopy> rounded_copies() const;
  void ParametersUpdated(int64_t begin, int64_t end);

  // Called as gradients [begin, end) are complete; the ranges follow one another from 0 to layout().total. By
  // then the step reads neither these gradients nor the parameters in this range any more, so that they may
  // be sent, or even updated, while it goes on.
  using GradientsReady = std::function<void(int64_t begin, int64_t end)>;

  // Forward and backward for this process's n samples. inputs [n, features] of input_type(); labels int32 [n]
  // for cross-entropy, float32 [n, outputs()] for the mean squared error. `scale` is 1 / global batch. Writes
  // (does not add) gradients = scale · Σ over the samples of ∂loss/∂parameter, without the L2 part, which is
  // the optimizer's. n may be 0 (gradients 0, inputs and labels not read). Results are sums over the samples.
  // Throws BadData for a label out of range.
  LossResult TrainStep(const void* inputs, const void* labels, int64_t n, float scale,
                       const GradientsReady& on_gradients_ready);
  // The same, but only enqueued on a backend whose work runs behind the host; the callback then says that
  // what completes the range is enqueued. The result comes into loss_sums().
  void EnqueueTrainStep(const void* inputs, const void* labels, int64_t n, float scale,
                        const GradientsReady& on_gradients_ready);
  // In the backend's memory; of the latest TrainStep or Evaluate. See ResultOf.
  const LossSums* loss_sums() const;

  // The forward pass and the loss alone. n may be 0; both passes take at most max_local_batch samples.
  LossResult Evaluate(const void* inputs, const void* labels, int64_t n);

  // The outputs (logits) of the last TrainStep or Evaluate, float32 [n, outputs()], in the backend's memory;
  // valid until the next.
  const float* last_outputs() const;

  // Σ over the variables of l2 · Σ w²: what Keras adds to the reported loss.
  double L2Penalty() const;

  // Between a flat buffer in the layout's order and the canonical order: the variables in the order of layers
  // (first layer first, kernel before bias), each row-major, without padding: canonical_size() floats. Exact
  // both ways. Host memory. For parameters and for optimizer slots alike.
  int64_t canonical_size() const;
  void ExportCanonical(const float* flat, std::span<float> canonical) const;
  void ImportCanonical(std::span<const float> canonical, float* flat) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::trainer
