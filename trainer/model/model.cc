#include "trainer/model/model.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "trainer/error.h"
#include "trainer/layers/stack.h"

namespace lockstep::trainer {
namespace {

int64_t PadVariable(int64_t size) {
  return (size + kVariablePadding - 1) / kVariablePadding * kVariablePadding;
}

// Cross-entropy takes logits: of a softmax at the end the loss is that of what goes into it, as Keras has it.
std::vector<LayerConfig> LayersOf(const ModelConfig& config) {
  std::vector<LayerConfig> layers = WithNames(config.layers);
  if (config.loss == LossKind::kSparseCategoricalCrossentropy && !layers.empty() &&
      layers.back().activation == Activation::kSoftmax) {
    layers.back().activation = Activation::kNone;
  }
  return layers;
}

}  // namespace

struct Model::Impl {
  // Where a layer's part of the flat buffers is.
  struct Place {
    std::vector<int64_t> offsets;  // of its variables
    int64_t begin = 0;             // of all of them, padding included
    int64_t end = 0;
  };

  Impl(const ModelConfig& config, const ModelOptions& model_options, Backend& device)
      : options(model_options),
        backend(device),
        loss_kind(config.loss),
        compute(ComputeType(options.precision)),
        part(CheckedPart(config)),
        layers(LayersOf(config)),
        input(PassOver(part.first)),
        stack(PartOfLayers(), Context(), backend) {
    recordable = !stack.placed_elsewhere();
    MakeWorkspace();
    LayOut();
    if (options.pieces > 1) {
      accumulated = Buffer(backend.allocator(), static_cast<size_t>(layout.total) * sizeof(float));
    }
    if (!HasLoss()) return;
    sums = Buffer(backend.allocator(), sizeof(LossSums));
    loss = backend.MakeLoss({.kind = config.loss,
                             .outputs = stack.outputs(),
                             .output_gradient = stack.output_gradient_type(),
                             .label_smoothing = config.label_smoothing});
  }

  LayerRange CheckedPart(const ModelConfig& config) const {
    if (config.layers.empty()) throw BadModel("model: layers is empty; at least one is needed");
    if (!(config.label_smoothing >= 0 && config.label_smoothing < 1)) {
      throw BadModel("model: labelSmoothing is " + std::to_string(config.label_smoothing) +
                     "; it must be in [0, 1)");
    }
    if (options.pieces < 1) {
      throw BadModel("model: a step in " + std::to_string(options.pieces) + " pieces; there must be one");
    }
    if (options.sample.rank() == 0 || options.sample.num_elements() <= 0 || options.max_local_batch <= 0) {
      throw BadModel("model: samples of " + options.sample.ToString() + " and a local batch of " +
                     std::to_string(options.max_local_batch) + "; both must be at least 1");
    }
    const LayerRange all{0, config.layers.size() - 1};
    const LayerRange range = options.part.value_or(all);
    if (range.first > range.last || range.last > all.last) {
      throw BadModel("model: layers " + std::to_string(range.first) + " to " + std::to_string(range.last) +
                     " of " + std::to_string(config.layers.size()) + " are not a part of it");
    }
    return range;
  }

  // What the layers before `end` make of a sample; notes how many variables they have.
  Shape PassOver(size_t end) {
    Shape shape = options.sample;
    for (size_t i = 0; i < end; ++i) {
      const LayerFacts facts = FactsOf(layers[i], shape);
      first_variable += static_cast<uint32_t>(facts.variables.size());
      shape = facts.output;
    }
    return shape;
  }

  std::vector<LayerConfig> PartOfLayers() const {
    return {layers.begin() + static_cast<std::ptrdiff_t>(part.first),
            layers.begin() + static_cast<std::ptrdiff_t>(part.last) + 1};
  }

  LayerContext Context() const {
    return {.input = input,
            .compute = compute,
            .tf32 = options.precision == Precision::kTf32,
            .input_gradient = first_variable > 0,
            .last = HasLoss(),
            .max_batch = max_pass(),
            .passes_in_flight = options.passes_in_flight,
            .place = options.place};
  }

  bool HasLoss() const { return part.last + 1 == layers.size(); }
  int64_t max_pass() const { return (options.max_local_batch + options.pieces - 1) / options.pieces; }

  // One allocation: for each slot what its passes leave for their backward passes and the outputs; then the
  // gradient of the outputs, and what layers use and leave to the next.
  void MakeWorkspace() {
    const auto bytes_of = [this](DataType type) {
      const size_t bytes = static_cast<size_t>(max_pass() * stack.outputs()) * SizeOf(type);
      return RoundUp(bytes, kBufferAlignment);
    };
    const size_t outputs = bytes_of(stack.output_type()), gradient = bytes_of(stack.output_gradient_type());
    const size_t slot = stack.saved_bytes() + outputs;
    const auto slots = static_cast<size_t>(options.passes_in_flight);
    workspace = Buffer(backend.allocator(), slots * slot + gradient + stack.scratch_bytes());
    std::byte* const begin = workspace.as<std::byte>();
    output_gradient = begin + slots * slot;
    for (size_t i = 0; i < slots; ++i) {
      memories.push_back({.y = begin + i * slot + stack.saved_bytes(),
                          .saved = begin + i * slot,
                          .scratch = begin + slots * slot + gradient});
    }
  }

  void LayOut() {
    places.resize(stack.size());
    for (size_t i = stack.size(); i-- > 0;) {
      Place& place = places[i];
      const Layer& layer = stack.layer(i);
      place.begin = layout.total;
      for (const VariableSpec& spec : layer.variables()) {
        place.offsets.push_back(layout.total);
        layout.variables.push_back({.name = layer.name() + "/" + spec.name,
                                    .shape = spec.shape,
                                    .offset = layout.total,
                                    .size = spec.stored_size,
                                    .l2 = spec.l2,
                                    .decays = spec.decays});
        BFloat16* rounded = layer.rounded(static_cast<int>(place.offsets.size()) - 1);
        if (rounded != nullptr)
          rounded_copies.push_back({layout.total, layout.total + spec.stored_size, rounded});
        layout.total += PadVariable(spec.stored_size);
      }
      place.end = layout.total;
    }
    ForEachVariable([&](const Layer& layer, int, const VariableSpec& spec, int64_t) {
      variables.push_back({layer.name() + "/" + spec.name, spec.shape});
      canonical_size += spec.shape.num_elements();
    });
    ForEachState([&](const Layer& layer, int, const StateSpec& spec) {
      state_variables.push_back({layer.name() + "/" + spec.name, spec.shape});
      state_size += spec.shape.num_elements();
    });
  }

  void Bind(std::span<float> to_parameters, std::span<const GradientRange> to_gradients) {
    parameters = to_parameters;
    for (size_t i = 0; i < stack.size(); ++i) {
      const Place& place = places[i];
      const auto range = std::find_if(
          to_gradients.begin(), to_gradients.end(),
          [&](const GradientRange& each) { return place.begin >= each.begin && place.end <= each.end; });
      if (range == to_gradients.end()) {
        throw BadModel("layer " + stack.layer(i).name() + " has its gradients in no single place");
      }
      std::vector<BoundVariable> bound;
      for (const int64_t offset : place.offsets) {
        bound.push_back({parameters.data() + offset, range->data + (offset - range->begin)});
      }
      stack.layer(i).Bind(bound);
    }
  }

  // What layers have made of variables in this range is made anew, unless an optimizer has done that.
  void Renew(int64_t begin, int64_t end, bool rounded_already) {
    for (size_t l = 0; l < stack.size(); ++l) {
      Layer& layer = stack.layer(l);
      for (size_t i = 0; i < places[l].offsets.size(); ++i) {
        const auto index = static_cast<int>(i);
        if (rounded_already && layer.rounded(index) != nullptr) continue;
        const int64_t offset = places[l].offsets[i];
        const int64_t from = std::max<int64_t>(begin - offset, 0);
        const int64_t to = std::min(end - offset, layer.variables()[i].stored_size);
        if (from < to) layer.ParametersChanged(index, from, to);
      }
    }
  }

  // Calls `visit(layer, index of the variable in its layer, its spec, its offset)` in canonical order.
  template <typename Visit>
  void ForEachVariable(Visit&& visit) const {
    for (size_t l = 0; l < stack.size(); ++l) {
      const std::vector<VariableSpec>& specs = stack.layer(l).variables();
      for (size_t i = 0; i < specs.size(); ++i)
        visit(stack.layer(l), static_cast<int>(i), specs[i], places[l].offsets[i]);
    }
  }
  template <typename Visit>
  void ForEachState(Visit&& visit) const {
    for (size_t l = 0; l < stack.size(); ++l) {
      const std::vector<StateSpec> specs = stack.layer(l).state();
      for (size_t i = 0; i < specs.size(); ++i) visit(stack.layer(l), static_cast<int>(i), specs[i]);
    }
  }

  LayerMemory MemoryOf(int slot, const void* inputs) const {
    LayerMemory memory = memories[static_cast<size_t>(slot)];
    memory.x = inputs;
    return memory;
  }

  const void* Forward(const Pass& pass, const void* inputs, int slot) {
    if (pass.n > max_pass()) {
      throw BadModel("a batch of " + std::to_string(pass.n) + " samples; the model was made for at most " +
                     std::to_string(max_pass()));
    }
    const trace::Scope scope(options.trace, trace::Track::kCompute, "forward");
    const LayerMemory memory = MemoryOf(slot, inputs);
    stack.Forward(pass, memory);
    return memory.y;
  }

  void EnqueueLoss(const ModelBatch& batch, void* gradient, int slot, int64_t before) {
    const trace::Scope scope(options.trace, trace::Track::kCompute, "loss");
    const auto* outputs = static_cast<const float*>(MemoryOf(slot, nullptr).y);
    latest_outputs = outputs;
    loss->Compute(batch.n, outputs, batch.labels, batch.scale, gradient, sums.as<LossSums>(), before);
  }

  void Backward(const Pass& pass, const void* inputs, void* gradient, void* input_gradient,
                const GradientsReady& ready, int slot) {
    const trace::Scope scope(options.trace, trace::Track::kCompute, "backward");
    // (Those that sum over the replicas write theirs; and several places have been zeroed already.)
    if (pass.n == 0 && !gradients.empty()) {
      backend.Zero(gradients.data(), static_cast<size_t>(layout.total) * sizeof(float));
    }
    const auto done = [&](size_t layer) { ready(places[layer].begin, places[layer].end); };
    stack.Backward(pass, MemoryOf(slot, inputs), gradient, input_gradient,
                   ready ? std::function<void(size_t)>(done) : nullptr);
  }

  void EnqueueStep(const ModelBatch& batch, const GradientsReady& ready, int64_t before) {
    const Pass pass = batch.TrainingPass();
    const auto at = [&](PassPoint point) {
      if (batch.on_point) batch.on_point(point);
    };
    at(PassPoint::kBegin);
    Forward(pass, batch.inputs, 0);
    if (batch.n > 0) {
      EnqueueLoss(batch, output_gradient, 0, before);
    } else if (before == 0) {
      backend.Zero(sums.data(), sizeof(LossSums));
    }
    at(PassPoint::kForwardDone);
    Backward(pass, batch.inputs, output_gradient, nullptr, ready, 0);
    at(PassPoint::kBackwardDone);
  }

  // Samples [first, first + count) of a batch.
  ModelBatch PieceOf(const ModelBatch& batch, int64_t first, int64_t count) const {
    ModelBatch piece = batch;
    piece.n = count;
    if (count == 0) return piece;
    const auto at = static_cast<size_t>(first);
    const size_t input = static_cast<size_t>(this->input.num_elements()) * SizeOf(compute);
    const size_t label =
        sizeof(float) * (loss_kind == LossKind::kMeanSquaredError ? static_cast<size_t>(stack.outputs()) : 1);
    piece.inputs = static_cast<const std::byte*>(batch.inputs) + at * input;
    piece.labels = static_cast<const std::byte*>(batch.labels) + at * label;
    if (!batch.keys.samples.empty()) {
      piece.keys.samples = batch.keys.samples.subspan(at, static_cast<size_t>(count));
    }
    return piece;
  }

  void EnqueueInPieces(const ModelBatch& batch, const GradientsReady& ready) {
    const int pieces = options.pieces;
    auto* const sum = accumulated.as<float>();
    backend.Zero(sum, accumulated.bytes());
    for (int i = 0; i < pieces; ++i) {
      const int64_t first = batch.n * i / pieces, end = batch.n * (i + 1) / pieces;
      const bool last = i + 1 == pieces;
      // The last piece has samples if any has. All others must be passed together with the other replicas.
      if (first == end && !last && !stack.sums_over_replicas()) continue;
      const auto add_to_last = [&](int64_t from, int64_t to) {
        backend.Accumulate(1, sum + from, gradients.data() + from, to - from);
        if (ready) ready(from, to);
      };
      EnqueueStep(PieceOf(batch, first, end - first), last ? GradientsReady(add_to_last) : GradientsReady(),
                  first);
      if (!last) backend.Accumulate(1, gradients.data(), sum, layout.total);
    }
  }

  LossResult Result() {
    LossSums host;
    backend.Download(&host, sums.data(), sizeof host);
    return ResultOf(host, stack.outputs());
  }

  ModelOptions options;
  Backend& backend;
  LossKind loss_kind;
  DataType compute;
  LayerRange part;
  std::vector<LayerConfig> layers;  // of the whole
  uint32_t first_variable = 0;      // of the part, among the variables of the whole
  Shape input;                      // of the part
  Stack stack;                      // the part
  std::vector<Place> places;        // by layer of the stack
  Buffer workspace;
  std::vector<LayerMemory> memories;  // by slot, but for the inputs
  void* output_gradient = nullptr;
  const float* latest_outputs = nullptr;
  std::unique_ptr<LossKernel> loss;  // of a part with the last layer
  Buffer sums;
  Buffer accumulated;  // with several pieces: the gradients of those before the last
  ParameterLayout layout;
  std::vector<RoundedCopy> rounded_copies;
  std::vector<NamedShape> variables;
  int64_t canonical_size = 0;
  std::vector<NamedShape> state_variables;
  int64_t state_size = 0;
  bool recordable = true;
  std::span<float> parameters;
  std::span<float> gradients;  // empty when they are in several places
};

Model::Model(const ModelConfig& config, const ModelOptions& options, Backend& backend)
    : impl_(std::make_unique<Impl>(config, options, backend)) {}
Model::~Model() = default;

const ParameterLayout& Model::layout() const { return impl_->layout; }
DataType Model::input_type() const { return impl_->compute; }
bool Model::wants_input_gradient() const { return impl_->first_variable > 0; }
DataType Model::output_type() const { return impl_->stack.output_type(); }
DataType Model::output_gradient_type() const { return impl_->stack.output_gradient_type(); }
int64_t Model::features() const { return impl_->input.num_elements(); }
bool Model::reads_inputs() const { return impl_->part.first == 0; }
bool Model::has_loss() const { return impl_->HasLoss(); }
int64_t Model::outputs() const { return impl_->stack.outputs(); }
LossKind Model::loss() const { return impl_->loss_kind; }
const std::vector<NamedShape>& Model::variables() const { return impl_->variables; }
int64_t Model::canonical_size() const { return impl_->canonical_size; }
const std::vector<NamedShape>& Model::state_variables() const { return impl_->state_variables; }
int64_t Model::state_size() const { return impl_->state_size; }
bool Model::state_differs() const { return impl_->stack.state_differs(); }
bool Model::sums_over_replicas() const { return impl_->stack.sums_over_replicas(); }
bool Model::recordable() const { return impl_->recordable; }
bool Model::adds_up_pieces() const { return impl_->options.pieces > 1; }
int64_t Model::max_pass() const { return impl_->max_pass(); }

int64_t Model::training_flops() const { return impl_->stack.training_flops(); }

void Model::Bind(std::span<float> parameters, std::span<float> gradients) {
  const auto total = static_cast<size_t>(impl_->layout.total);
  if (parameters.size() < total || gradients.size() < total) {
    throw BadModel("buffers of " + std::to_string(parameters.size()) + " and " +
                   std::to_string(gradients.size()) + " floats were bound to a model of " +
                   std::to_string(total));
  }
  const GradientRange all{0, impl_->layout.total, gradients.data()};
  impl_->Bind(parameters, std::span(&all, 1));
  impl_->gradients = gradients;
}

void Model::Bind(std::span<float> parameters, std::span<const GradientRange> gradients) {
  if (impl_->options.pieces > 1) {
    throw BadModel("the gradients of a step in " + std::to_string(impl_->options.pieces) +
                   " pieces are added up in one place");
  }
  impl_->Bind(parameters, gradients);
  impl_->gradients = {};
}

std::vector<int64_t> Model::layer_ends() const {
  std::vector<int64_t> ends;
  for (const Impl::Place& place : impl_->places) {
    if (place.begin < place.end) ends.push_back(place.end);
  }
  std::sort(ends.begin(), ends.end());
  return ends;
}

void Model::Initialize(uint64_t seed) {
  std::vector<float> canonical(static_cast<size_t>(impl_->canonical_size));
  size_t place = 0;
  uint32_t variable = impl_->first_variable;
  impl_->ForEachVariable([&](const Layer&, int, const VariableSpec& spec, int64_t) {
    const auto size = static_cast<size_t>(spec.shape.num_elements());
    trainer::Initialize(spec.initializer, spec.shape, seed, variable++,
                        std::span(canonical).subspan(place, size));
    place += size;
  });
  const size_t bytes = static_cast<size_t>(impl_->layout.total) * sizeof(float);
  const Buffer flat = ZeroedHostBuffer(bytes);
  ImportCanonical(canonical, flat.as<float>());
  impl_->backend.Upload(impl_->parameters.data(), flat.data(), bytes);
  ParametersChanged(0, impl_->layout.total);
}

void Model::ParametersChanged(int64_t begin, int64_t end) { impl_->Renew(begin, end, false); }

std::span<const RoundedCopy> Model::rounded_copies() const { return impl_->rounded_copies; }

void Model::ParametersUpdated(int64_t begin, int64_t end) { impl_->Renew(begin, end, true); }

void Model::EnqueueTrainStep(const ModelBatch& batch, const GradientsReady& on_gradients_ready) {
  if (impl_->options.pieces > 1) return impl_->EnqueueInPieces(batch, on_gradients_ready);
  impl_->EnqueueStep(batch, on_gradients_ready, 0);
}

LossResult Model::TrainStep(const ModelBatch& batch, const GradientsReady& on_gradients_ready) {
  EnqueueTrainStep(batch, on_gradients_ready);
  return impl_->Result();
}

LossResult Model::Evaluate(const void* inputs, const void* labels, int64_t n) {
  if (n == 0) return {};
  impl_->Forward({.n = n}, inputs, 0);
  return Loss({.inputs = inputs, .labels = labels, .n = n}, nullptr);
}

const void* Model::Forward(const Pass& pass, const void* inputs, int slot) {
  return impl_->Forward(pass, inputs, slot);
}

void Model::EnqueueLoss(const ModelBatch& batch, void* output_gradient, int slot, int64_t before) {
  impl_->EnqueueLoss(batch, output_gradient, slot, before);
}

LossResult Model::Loss(const ModelBatch& batch, void* output_gradient, int slot) {
  EnqueueLoss(batch, output_gradient, slot);
  return impl_->Result();
}

void Model::Backward(const Pass& pass, const void* inputs, void* output_gradient, void* input_gradient,
                     const GradientsReady& on_gradients_ready, int slot) {
  impl_->Backward(pass, inputs, output_gradient, input_gradient, on_gradients_ready, slot);
}

const LossSums* Model::loss_sums() const { return impl_->sums.as<LossSums>(); }

const float* Model::last_outputs() const { return impl_->latest_outputs; }

double Model::L2Penalty() const {
  double penalty = 0;
  for (const Variable& variable : impl_->layout.variables) {
    if (variable.l2 == 0) continue;
    penalty +=
        variable.l2 * impl_->backend.SumOfSquares(impl_->parameters.data() + variable.offset, variable.size);
  }
  return penalty;
}

void Model::ExportCanonical(const float* flat, std::span<float> canonical) const {
  float* to = canonical.data();
  impl_->ForEachVariable([&](const Layer& layer, int index, const VariableSpec& spec, int64_t offset) {
    layer.ToCanonical(index, flat + offset, to);
    to += spec.shape.num_elements();
  });
}

void Model::ExportVariables(std::span<const size_t> which, const float* flat, float* to) const {
  size_t number = 0;
  impl_->ForEachVariable([&](const Layer& layer, int index, const VariableSpec& spec, int64_t offset) {
    if (which.empty() || number++ != which.front()) return;
    which = which.subspan(1);
    layer.ToCanonical(index, flat + offset, to);
    to += spec.shape.num_elements();
  });
}

void Model::ImportCanonical(std::span<const float> canonical, float* flat) const {
  const float* from = canonical.data();
  impl_->ForEachVariable([&](const Layer& layer, int index, const VariableSpec& spec, int64_t offset) {
    layer.FromCanonical(index, from, flat + offset);
    from += spec.shape.num_elements();
  });
}

void Model::ExportState(std::span<float> to) const {
  float* place = to.data();
  impl_->ForEachState([&](const Layer& layer, int index, const StateSpec& spec) {
    layer.ExportState(index, place);
    place += spec.shape.num_elements();
  });
}

void Model::ExportState(std::span<const size_t> which, float* to) const {
  size_t number = 0;
  impl_->ForEachState([&](const Layer& layer, int index, const StateSpec& spec) {
    if (which.empty() || number++ != which.front()) return;
    which = which.subspan(1);
    layer.ExportState(index, to);
    to += spec.shape.num_elements();
  });
}

void Model::ImportState(std::span<const float> from) {
  const float* place = from.data();
  impl_->ForEachState([&](Layer& layer, int index, const StateSpec& spec) {
    layer.ImportState(index, place);
    place += spec.shape.num_elements();
  });
}

void Model::AverageState(ReplicaSum& replicas, int count) {
  std::vector<float> state(static_cast<size_t>(impl_->state_size));
  ExportState(state);
  std::vector<double> sums(state.begin(), state.end());
  replicas.Sum(sums);
  for (size_t i = 0; i < state.size(); ++i) state[i] = static_cast<float>(sums[i] / count);
  ImportState(state);
}

}  // namespace lockstep::trainer
