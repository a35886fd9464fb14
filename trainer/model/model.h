#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/backend/backend.h"
#include "trainer/layers/pass.h"
#include "trainer/model/model_config.h"
#include "trainer/tensor/parameter_layout.h"
#include "trainer/trace/recorder.h"

// model/ is a stack of layers and a loss: it lays the parameters out flat, holds the activations, and runs a
// training step up to the gradients. It talks to no other process and updates nothing; strategy/ does both.
namespace lockstep::trainer {

// Layers [first, last], both included.
struct LayerRange {
  size_t first = 0;
  size_t last = 0;
};

struct ModelOptions {
  Shape sample;                 // of an input: [features] or [height, width, channels]
  int64_t max_local_batch = 0;  // of this process, in a step
  // A training step is worked off in so many pieces, one after the other, whose gradients are added up: the
  // memory is that of a piece. Every replica makes as many passes, whatever its part of the batch.
  int pieces = 1;
  Precision precision = Precision::kFloat32;
  // Where a layer computes, if not on the model's own backend; see layers/placed.h. Outlives the model.
  std::function<Backend&(const LayerConfig& layer)> place;
  // The part of the config's layers that this process has; empty: all. The model is then of these only, its
  // inputs what the layer before makes, but its variables begin as they do in the whole. `sample` is still
  // the whole model's.
  std::optional<LayerRange> part;
  // How many Forward passes may wait for their Backward at once; each has activations of its own.
  int passes_in_flight = 1;
  // Gets "forward", "loss" and "backward" of every pass, as the host runs them: for backends whose work does
  // not run behind the host. Null: nobody asked. Outlives the model.
  trace::Recorder* trace = nullptr;
};

// Where a pass is in being enqueued.
enum class PassPoint { kBegin, kForwardDone, kBackwardDone };

// This process's part of a global batch.
struct ModelBatch {
  const void* inputs = nullptr;  // [n, sample] of input_type()
  const void* labels =
      nullptr;  // int32 [n] for cross-entropy, float32 [n, outputs] for the mean squared error
  int64_t n = 0;
  float scale = 1;                 // 1 / global batch
  RandomKeys keys;                 // for models that draw random numbers in training
  ReplicaSum* replicas = nullptr;  // needed where there are several and sums_over_replicas()
  // Called by EnqueueTrainStep as it comes there, in each piece of the step; empty: nobody asks. The loss
  // counts as forward.
  std::function<void(PassPoint)> on_point = nullptr;

  Pass TrainingPass() const { return {.n = n, .training = true, .keys = keys, .replicas = replicas}; }
};

// Where gradients [begin, end) of the layout are, those of whole layers of the model.
struct GradientRange {
  int64_t begin = 0;
  int64_t end = 0;
  float* data = nullptr;
};

// A variable or a piece of state as checkpoints have it.
struct NamedShape {
  std::string name;  // "dense/kernel"
  Shape shape;
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
  int64_t features() const;     // of an input sample
  int64_t outputs() const;
  LossKind loss() const;
  // What a part of a model is given of a batch: the inputs with the first layer, the labels with the last.
  bool reads_inputs() const;
  bool has_loss() const;
  int64_t training_flops() const;  // a sample, forward and backward; for metrics
  // Whether a step on a device only enqueues: no layer is placed elsewhere.
  bool recordable() const;
  bool adds_up_pieces() const;  // ModelOptions::pieces > 1
  int64_t max_pass() const;     // samples in one pass: max_local_batch, or a piece's
  // Whether a training step sums over the replicas: a strategy with several gives it ModelBatch::replicas, or
  // refuses the model.
  bool sums_over_replicas() const;

  // Where parameters and gradients are from now on: layout().total floats each, in the backend's memory,
  // 64-byte aligned, zeroed before their first use (padding must be zero) and outliving the model or the next
  // Bind. Several processes may share the parameters: the model writes them in Initialize only.
  void Bind(std::span<float> parameters, std::span<float> gradients);
  // The same with gradients in several places, whose ranges follow one another from 0 to layout().total, and
  // which may lie in the same memory: a range's is zeroed by the caller, on the backend, before each step
  // comes to it, which is when GradientsReady has been called for the range before. Throws BadModel for
  // ranges that cut a layer in two, and with ModelOptions::pieces.
  void Bind(std::span<float> parameters, std::span<const GradientRange> gradients);
  // Where the layers' parts of the layout end, ascending; the last is layout().total.
  std::vector<int64_t> layer_ends() const;

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

  // Forward and backward for this process's samples. Writes (does not add) gradients = scale · Σ over the
  // samples of ∂loss/∂parameter, without the L2 part, which is the optimizer's. n may be 0 (gradients 0,
  // inputs and labels not read). Results are sums over the samples. Throws BadData for a label out of range.
  LossResult TrainStep(const ModelBatch& batch, const GradientsReady& on_gradients_ready);
  // The same, but only enqueued on a backend whose work runs behind the host; the callback then says that
  // what completes the range is enqueued. The result comes into loss_sums().
  void EnqueueTrainStep(const ModelBatch& batch, const GradientsReady& on_gradients_ready);
  // In the backend's memory; of the latest TrainStep or Evaluate. See ResultOf.
  const LossSums* loss_sums() const;

  // The forward pass and the loss alone. n may be 0, and is at most max_pass().
  LossResult Evaluate(const void* inputs, const void* labels, int64_t n);

  // The outputs (logits) of the last TrainStep's last piece or of the last Evaluate, float32 [n, outputs()],
  // in the backend's memory; valid until the next.
  const float* last_outputs() const;

  // The pieces of a step, for those that run a part of the model or several passes at once. `slot`, below
  // passes_in_flight, says whose activations are meant.
  //
  // Returns the outputs, [n, outputs()] of output_type(), in the backend's memory, which stay until the next
  // Forward of the slot. n may be 0.
  const void* Forward(const Pass& pass, const void* inputs, int slot = 0);
  // Of the part with the last layer, after its Forward: the loss, enqueued as by EnqueueTrainStep, and,
  // unless it is null, the gradient of the outputs into `output_gradient`, of output_gradient_type(); n > 0.
  // With `before`, samples that loss_sums() has already, it is added to those.
  void EnqueueLoss(const ModelBatch& batch, void* output_gradient, int slot = 0, int64_t before = 0);
  LossResult Loss(const ModelBatch& batch, void* output_gradient, int slot = 0);
  // After Forward, with the same pass and inputs. Reads and overwrites output_gradient; writes (does not add)
  // the gradients of the part's parameters and, unless it is null, that of the inputs, of input_type(), which
  // wants_input_gradient().
  void Backward(const Pass& pass, const void* inputs, void* output_gradient, void* input_gradient,
                const GradientsReady& on_gradients_ready, int slot = 0);
  // Whether a layer before the part has variables.
  bool wants_input_gradient() const;
  DataType output_type() const;
  DataType output_gradient_type() const;

  // What layers keep from step to step beside the parameters (moving statistics), in the order of the layers,
  // as the parameters are in canonical order; host memory. It starts as the layers say.
  const std::vector<NamedShape>& state_variables() const;
  int64_t state_size() const;
  void ExportState(std::span<float> to) const;
  // Of some of it, by index, ascending.
  void ExportState(std::span<const size_t> which, float* to) const;
  void ImportState(std::span<const float> from);
  // Whether replicas come to different states. What counts is then their mean: see AverageState.
  bool state_differs() const;
  // Makes the state of every replica their mean. Collective; `count` replicas.
  void AverageState(ReplicaSum& replicas, int count);

  // Σ over the variables of l2 · Σ w²: what Keras adds to the reported loss.
  double L2Penalty() const;

  // Between a flat buffer in the layout's order and the canonical order: the variables in the order of layers
  // (first layer first, kernel before bias), each row-major, without padding: canonical_size() floats. Exact
  // both ways. Host memory. For parameters and for optimizer slots alike.
  const std::vector<NamedShape>& variables() const;
  int64_t canonical_size() const;
  void ExportCanonical(const float* flat, std::span<float> canonical) const;
  // Of some variables, by index, ascending.
  void ExportVariables(std::span<const size_t> which, const float* flat, float* to) const;
  void ImportCanonical(std::span<const float> canonical, float* flat) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::trainer
