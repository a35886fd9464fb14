#include "trainer/layers/stack.h"

#include <algorithm>
#include <utility>

#include "trainer/layers/placed.h"
#include "trainer/tensor/buffer.h"

namespace lockstep::trainer {
namespace {

size_t Aligned(size_t bytes) { return RoundUp(bytes, kBufferAlignment); }

bool IsIdentity(const LayerConfig& layer) {
  return layer.kind == LayerKind::kFlatten ||
         (layer.kind == LayerKind::kActivation && layer.activation == Activation::kNone);
}

bool CanActivate(LayerKind kind) {
  return kind == LayerKind::kDense || kind == LayerKind::kConv2D || kind == LayerKind::kBatchNormalization ||
         kind == LayerKind::kResidual;
}

// A ReLU moved into the layer before it, where both are on the same device. The layers stay as many.
std::vector<LayerConfig> Fused(std::vector<LayerConfig> layers, const LayerContext& context) {
  for (size_t i = 1; i < layers.size(); ++i) {
    LayerConfig &before = layers[i - 1], &relu = layers[i];
    if (relu.kind != LayerKind::kActivation || relu.activation != Activation::kRelu) continue;
    if (!CanActivate(before.kind) || before.activation != Activation::kNone) continue;
    if (context.place && &context.place(before) != &context.place(relu)) continue;
    before.activation = std::exchange(relu.activation, Activation::kNone);
  }
  return layers;
}

}  // namespace

Stack::Stack(const std::vector<LayerConfig>& given, const LayerContext& context, Backend& backend)
    : input_(context.input) {
  const std::vector<LayerConfig> layers = Fused(given, context);
  Shape input = context.input;
  bool gradient = context.input_gradient;
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerContext here = context;
    here.input = input;
    here.input_gradient = gradient;
    here.last = context.last &&
                std::all_of(layers.begin() + static_cast<std::ptrdiff_t>(i) + 1, layers.end(), IsIdentity);
    Backend& where = context.place ? context.place(layers[i]) : backend;
    layers_.push_back(MakeLayer(layers[i], here, where));
    if (&where != &backend && !layers_.back()->is_identity()) {
      layers_.back() = std::make_unique<PlacedLayer>(std::move(layers_.back()), here, backend, where);
      placed_elsewhere_ = true;
    }
    const Layer& layer = *layers_.back();
    const bool backward = gradient || !layer.variables().empty();
    if (!layer.is_identity())
      steps_.push_back({.layer = i, .backward = backward, .input_gradient = gradient});
    gradient = backward;
    input = layer.output_shape();
  }
  PlanMemory(context.max_batch);
}

// In scratch: two gradients by turns, of the layer at hand and of the one before, then the layer's own.
void Stack::PlanMemory(int64_t max_batch) {
  size_t layer_scratch = 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Layer& layer = *layers_[steps_[i].layer];
    const auto bytes = [&](DataType type) {
      return Aligned(static_cast<size_t>(max_batch * layer.outputs()) * SizeOf(type));
    };
    steps_[i].saved = saved_bytes_;
    saved_bytes_ += Aligned(layer.saved_bytes());
    layer_scratch = std::max(layer_scratch, Aligned(layer.scratch_bytes()));
    if (i + 1 == steps_.size()) break;
    steps_[i].outputs = saved_bytes_;
    saved_bytes_ += bytes(layer.output_type());
    gradient_bytes_ = std::max(gradient_bytes_, bytes(layer.output_gradient_type()));
  }
  scratch_bytes_ = 2 * gradient_bytes_ + layer_scratch;
}

LayerMemory Stack::MemoryOf(size_t step, const LayerMemory& memory) const {
  const bool last = step + 1 == steps_.size();
  return {.x = step == 0 ? memory.x : At(memory.saved, steps_[step - 1].outputs),
          .y = last ? memory.y : At(memory.saved, steps_[step].outputs),
          .saved = At(memory.saved, steps_[step].saved),
          .scratch = At(memory.scratch, 2 * gradient_bytes_)};
}

void Stack::Forward(const Pass& pass, const LayerMemory& memory) {
  for (size_t i = 0; i < steps_.size(); ++i) {
    Layer& layer = *layers_[steps_[i].layer];
    if (pass.n > 0 || layer.sums_over_replicas()) layer.Forward(pass, MemoryOf(i, memory));
  }
}

void Stack::Backward(const Pass& pass, const LayerMemory& memory, void* dy, void* dx,
                     const std::function<void(size_t layer)>& done) {
  void* gradient = dy;
  size_t told = layers_.size();
  const auto tell_down_to = [&](size_t layer) {
    while (done && told > layer) done(--told);
  };
  for (size_t i = steps_.size(); i-- > 0;) {
    const Step& step = steps_[i];
    if (!step.backward) break;
    Layer& layer = *layers_[step.layer];
    void* const before = i == 0 ? dx : At(memory.scratch, (i % 2) * gradient_bytes_);
    if (pass.n > 0 || layer.sums_over_replicas()) {
      layer.Backward(pass, MemoryOf(i, memory), gradient, step.input_gradient ? before : nullptr);
    }
    tell_down_to(step.layer);
    gradient = before;
  }
  tell_down_to(0);
}

int64_t Stack::training_flops() const {
  int64_t sum = 0;
  for (const auto& layer : layers_) sum += layer->training_flops();
  return sum;
}

bool Stack::sums_over_replicas() const {
  return std::any_of(layers_.begin(), layers_.end(),
                     [](const auto& layer) { return layer->sums_over_replicas(); });
}

bool Stack::state_differs() const {
  return std::any_of(layers_.begin(), layers_.end(),
                     [](const auto& layer) { return layer->state_differs(); });
}

}  // namespace lockstep::trainer
