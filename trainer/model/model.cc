#include "trainer/model/model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "trainer/error.h"
#include "trainer/layers/layer.h"
#include "trainer/layers/placed.h"

namespace lockstep::trainer {
namespace {

int64_t PadVariable(int64_t size) {
  return (size + kVariablePadding - 1) / kVariablePadding * kVariablePadding;
}

// Names as Keras gives them: dense, dense_1, dense_2.
std::vector<LayerConfig> WithNames(std::vector<LayerConfig> layers) {
  int dense = 0;
  for (LayerConfig& layer : layers) {
    if (layer.name.empty()) layer.name = dense == 0 ? "dense" : "dense_" + std::to_string(dense);
    ++dense;
  }
  return layers;
}

}  // namespace

struct Model::Impl {
  // A layer, where its part of the flat buffers is, and what it makes of a batch.
  struct Stage {
    std::unique_ptr<Layer> layer;
    std::vector<int64_t> offsets;  // of its variables
    int64_t begin = 0;             // of all of them, padding included
    int64_t end = 0;
    void* outputs = nullptr;  // in the workspace
  };

  Impl(const ModelConfig& config, const ModelOptions& model_options, Backend& device)
      : options(model_options), backend(device), loss_kind(config.loss) {
    if (config.layers.empty()) throw BadModel("model: layers is empty; at least one is needed");
    if (options.features <= 0 || options.max_local_batch <= 0) {
      throw BadModel("model: " + std::to_string(options.features) + " features and a local batch of " +
                     std::to_string(options.max_local_batch) + "; both must be at least 1");
    }
    compute = ComputeType(options.precision);
    MakeStages(WithNames(config.layers));
    MakeWorkspace();
    LayOut();
    sums = Buffer(backend.allocator(), sizeof(LossSums));
    loss = backend.MakeLoss({.kind = config.loss,
                             .outputs = stages.back().layer->outputs(),
                             .output_gradient = stages.back().layer->output_gradient_type()});
  }

  void MakeStages(const std::vector<LayerConfig>& layers) {
    int64_t inputs = options.features;
    for (size_t i = 0; i < layers.size(); ++i) {
      const LayerContext context{.inputs = inputs,
                                 .compute = compute,
                                 .tf32 = options.precision == Precision::kTf32,
                                 .first = i == 0,
                                 .last = i + 1 == layers.size(),
                                 .max_batch = options.max_local_batch};
      Backend& where = options.place ? options.place(layers[i].name) : backend;
      Stage stage;
      stage.layer = MakeLayer(layers[i], context, where);
      if (&where != &backend) {
        stage.layer = std::make_unique<PlacedLayer>(std::move(stage.layer), context, backend, where);
        recordable = false;
      }
      inputs = stage.layer->outputs();
      stages.push_back(std::move(stage));
    }
  }

  // Activations and their gradients lie together in one allocation.
  void MakeWorkspace() {
    const auto bytes_of = [this](const Layer& layer, DataType type) {
      const size_t bytes = static_cast<size_t>(options.max_local_batch * layer.outputs()) * SizeOf(type);
      return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    };
    size_t total = 0;
    size_t gradient = 0;
    for (const Stage& stage : stages) {
      total += bytes_of(*stage.layer, stage.layer->output_type());
      gradient = std::max(gradient, bytes_of(*stage.layer, stage.layer->output_gradient_type()));
    }
    workspace = Buffer(backend.allocator(), total + 2 * gradient);
    char* place = workspace.as<char>();
    for (Stage& stage : stages) {
      stage.outputs = place;
      place += bytes_of(*stage.layer, stage.layer->output_type());
    }
    output_gradients[0] = place;
    output_gradients[1] = place + gradient;
  }

  void LayOut() {
    for (size_t i = stages.size(); i-- > 0;) {
      Stage& stage = stages[i];
      stage.begin = layout.total;
      for (const VariableSpec& spec : stage.layer->variables()) {
        stage.offsets.push_back(layout.total);
        layout.variables.push_back({.name = stage.layer->name() + "/" + spec.name,
                                    .shape = spec.shape,
                                    .offset = layout.total,
                                    .size = spec.stored_size,
                                    .l2 = spec.l2});
        BFloat16* rounded = stage.layer->rounded(static_cast<int>(stage.offsets.size()) - 1);
        if (rounded != nullptr)
          rounded_copies.push_back({layout.total, layout.total + spec.stored_size, rounded});
        layout.total += PadVariable(spec.stored_size);
        canonical_size += spec.shape.num_elements();
      }
      stage.end = layout.total;
    }
  }

  // What layers have made of variables in this range is made anew, unless an optimizer has done that.
  void Renew(int64_t begin, int64_t end, bool rounded_already) {
    for (Stage& stage : stages) {
      for (size_t i = 0; i < stage.offsets.size(); ++i) {
        const auto index = static_cast<int>(i);
        if (rounded_already && stage.layer->rounded(index) != nullptr) continue;
        const int64_t offset = stage.offsets[i];
        const int64_t from = std::max<int64_t>(begin - offset, 0);
        const int64_t to = std::min(end - offset, stage.layer->variables()[i].stored_size);
        if (from < to) stage.layer->ParametersChanged(index, from, to);
      }
    }
  }

  // Calls `visit(stage, index of the variable in its layer, its spec, its offset)` in canonical order.
  template <typename Visit>
  void ForEachVariable(Visit&& visit) const {
    for (const Stage& stage : stages) {
      const std::vector<VariableSpec>& specs = stage.layer->variables();
      for (size_t i = 0; i < specs.size(); ++i) visit(stage, static_cast<int>(i), specs[i], stage.offsets[i]);
    }
  }

  const void* InputOf(size_t stage, const void* inputs) const {
    return stage == 0 ? inputs : stages[stage - 1].outputs;
  }

  void Forward(const void* inputs, int64_t n) {
    if (n > options.max_local_batch) {
      throw BadModel("a batch of " + std::to_string(n) + " samples; the model was made for at most " +
                     std::to_string(options.max_local_batch));
    }
    for (size_t i = 0; i < stages.size(); ++i) {
      stages[i].layer->Forward(n, InputOf(i, inputs), stages[i].outputs);
    }
  }

  void Backward(const void* inputs, int64_t n, const GradientsReady& ready) {
    void* dy = output_gradients[0];
    void* dx = output_gradients[1];
    for (size_t i = stages.size(); i-- > 0;) {
      Stage& stage = stages[i];
      stage.layer->Backward(n, InputOf(i, inputs), stage.outputs, dy, i == 0 ? nullptr : dx);
      if (ready) ready(stage.begin, stage.end);
      std::swap(dy, dx);
    }
  }

  LossResult Result() {
    LossSums host;
    backend.Download(&host, sums.data(), sizeof host);
    return ResultOf(host, stages.back().layer->outputs());
  }

  ModelOptions options;
  Backend& backend;
  LossKind loss_kind;
  DataType compute = DataType::kFloat32;
  std::vector<Stage> stages;
  Buffer workspace;
  void* output_gradients[2] = {nullptr, nullptr};  // of the layer at hand and of the one before, in turn
  std::unique_ptr<LossKernel> loss;
  Buffer sums;
  ParameterLayout layout;
  std::vector<RoundedCopy> rounded_copies;
  int64_t canonical_size = 0;
  bool recordable = true;
  std::span<float> parameters;
  std::span<float> gradients;
};

Model::Model(const ModelConfig& config, const ModelOptions& options, Backend& backend)
    : impl_(std::make_unique<Impl>(config, options, backend)) {}
Model::~Model() = default;

const ParameterLayout& Model::layout() const { return impl_->layout; }
DataType Model::input_type() const { return impl_->compute; }
int64_t Model::features() const { return impl_->options.features; }
int64_t Model::outputs() const { return impl_->stages.back().layer->outputs(); }
LossKind Model::loss() const { return impl_->loss_kind; }
int64_t Model::canonical_size() const { return impl_->canonical_size; }
bool Model::recordable() const { return impl_->recordable; }

int64_t Model::training_flops() const {
  int64_t sum = 0;
  for (const Impl::Stage& stage : impl_->stages) sum += stage.layer->training_flops();
  return sum;
}

void Model::Bind(std::span<float> parameters, std::span<float> gradients) {
  const auto total = static_cast<size_t>(impl_->layout.total);
  if (parameters.size() < total || gradients.size() < total) {
    throw BadModel("buffers of " + std::to_string(parameters.size()) + " and " +
                   std::to_string(gradients.size()) + " floats were bound to a model of " +
                   std::to_string(total));
  }
  impl_->parameters = parameters;
  impl_->gradients = gradients;
  for (Impl::Stage& stage : impl_->stages) {
    std::vector<BoundVariable> bound;
    for (const int64_t offset : stage.offsets)
      bound.push_back({parameters.data() + offset, gradients.data() + offset});
    stage.layer->Bind(bound);
  }
}

void Model::Initialize(uint64_t seed) {
  std::vector<float> canonical(static_cast<size_t>(impl_->canonical_size));
  size_t place = 0;
  uint32_t variable = 0;
  impl_->ForEachVariable([&](const Impl::Stage&, int, const VariableSpec& spec, int64_t) {
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

void Model::EnqueueTrainStep(const void* inputs, const void* labels, int64_t n, float scale,
                             const GradientsReady& on_gradients_ready) {
  Impl& impl = *impl_;
  if (n == 0) {
    impl.backend.Zero(impl.gradients.data(), static_cast<size_t>(impl.layout.total) * sizeof(float));
    impl.backend.Zero(impl.sums.data(), sizeof(LossSums));
    for (size_t i = impl.stages.size(); i-- > 0;) {
      if (on_gradients_ready) on_gradients_ready(impl.stages[i].begin, impl.stages[i].end);
    }
    return;
  }
  impl.Forward(inputs, n);
  impl.loss->Compute(n, last_outputs(), labels, scale, impl.output_gradients[0], impl.sums.as<LossSums>());
  impl.Backward(inputs, n, on_gradients_ready);
}

LossResult Model::TrainStep(const void* inputs, const void* labels, int64_t n, float scale,
                            const GradientsReady& on_gradients_ready) {
  EnqueueTrainStep(inputs, labels, n, scale, on_gradients_ready);
  return impl_->Result();
}

LossResult Model::Evaluate(const void* inputs, const void* labels, int64_t n) {
  if (n == 0) return {};
  impl_->Forward(inputs, n);
  impl_->loss->Compute(n, last_outputs(), labels, 0, nullptr, impl_->sums.as<LossSums>());
  return impl_->Result();
}

const LossSums* Model::loss_sums() const { return impl_->sums.as<LossSums>(); }

const float* Model::last_outputs() const { return static_cast<const float*>(impl_->stages.back().outputs); }

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
  impl_->ForEachVariable([&](const Impl::Stage& stage, int index, const VariableSpec& spec, int64_t offset) {
    stage.layer->ToCanonical(index, flat + offset, to);
    to += spec.shape.num_elements();
  });
}

void Model::ImportCanonical(std::span<const float> canonical, float* flat) const {
  const float* from = canonical.data();
  impl_->ForEachVariable([&](const Impl::Stage& stage, int index, const VariableSpec& spec, int64_t offset) {
    stage.layer->FromCanonical(index, from, flat + offset);
    from += spec.shape.num_elements();
  });
}

}  // namespace lockstep::trainer
