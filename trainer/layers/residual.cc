#include "trainer/layers/residual.h"

#include <algorithm>

#include "trainer/error.h"
#include "trainer/tensor/buffer.h"

namespace lockstep::trainer {
namespace {

size_t BytesOf(int64_t floats) {
  return RoundUp(static_cast<size_t>(floats) * sizeof(float), kBufferAlignment);
}

LayerContext Within(const LayerConfig& config, LayerContext context) {
  context.place = nullptr;
  context.last = false;
  context.scope += config.name + "/";
  return context;
}

LayerFacts FactsOfAll(const std::vector<LayerConfig>& layers, const Shape& input) {
  LayerFacts all{.output = input};
  for (const LayerConfig& layer : layers) {
    LayerFacts facts = FactsOf(layer, all.output);
    all.output = facts.output;
    all.forward_flops += facts.forward_flops;
    for (VariableSpec& variable : facts.variables) {
      variable.name = layer.name + "/" + variable.name;
      all.variables.push_back(std::move(variable));
    }
  }
  return all;
}

}  // namespace

LayerFacts ResidualFacts(const LayerConfig& config, const Shape& input) {
  if (config.body.empty()) throw BadModel("layer " + config.name + ": a Residual block needs layers");
  if (config.activation != Activation::kNone && config.activation != Activation::kRelu) {
    throw BadModel("layer " + config.name + ": the activation of a Residual block is None or ReLU");
  }
  LayerFacts facts = FactsOfAll(WithNames(config.body), input);
  LayerFacts shortcut = FactsOfAll(WithNames(config.shortcut), input);
  if (facts.output != shortcut.output) {
    throw BadModel("layer " + config.name + ": its layers make " + facts.output.ToString() +
                   ", and its shortcut " + shortcut.output.ToString() + "; the two are added");
  }
  facts.forward_flops += shortcut.forward_flops;
  for (VariableSpec& variable : shortcut.variables) {
    variable.name = "shortcut/" + variable.name;
    facts.variables.push_back(std::move(variable));
  }
  return facts;
}

Residual::Residual(const LayerConfig& config, const LayerContext& context, Backend& backend)
    : Block(config, context),
      backend_(backend),
      relu_(config.activation == Activation::kRelu),
      inputs_(context.input.num_elements()),
      max_batch_(context.max_batch),
      body_(WithNames(config.body), Within(config, context), backend),
      shortcut_(WithNames(config.shortcut), Within(config, context), backend) {
  ResidualFacts(config, context.input);
  Own(body_, "");
  Own(shortcut_, "shortcut/");
}

// Saved: the body's and what it made, then the shortcut's and what it made.
size_t Residual::saved_bytes() const {
  const size_t outputs = BytesOf(max_batch_ * body_.outputs());
  return body_.saved_bytes() + outputs + (shortcut_.is_identity() ? 0 : shortcut_.saved_bytes() + outputs);
}

// Scratch: a copy of dy, the shortcut's dx, then the stacks'.
size_t Residual::scratch_bytes() const {
  return BytesOf(max_batch_ * body_.outputs()) + BytesOf(max_batch_ * inputs_) +
         std::max(body_.scratch_bytes(), shortcut_.scratch_bytes());
}

LayerMemory Residual::BodyMemory(const LayerMemory& memory) const {
  return {
      .x = memory.x,
      .y = At(memory.saved, body_.saved_bytes()),
      .saved = memory.saved,
      .scratch = At(memory.scratch, BytesOf(max_batch_ * body_.outputs()) + BytesOf(max_batch_ * inputs_))};
}

LayerMemory Residual::ShortcutMemory(const LayerMemory& memory) const {
  LayerMemory shortcut = BodyMemory(memory);
  shortcut.saved = At(memory.saved, body_.saved_bytes() + BytesOf(max_batch_ * body_.outputs()));
  shortcut.y = At(shortcut.saved, shortcut_.saved_bytes());
  return shortcut;
}

void Residual::Forward(const Pass& pass, const LayerMemory& memory) {
  const LayerMemory body = BodyMemory(memory), shortcut = ShortcutMemory(memory);
  body_.Forward(pass, body);
  shortcut_.Forward(pass, shortcut);
  if (pass.n == 0) return;
  backend_.Add(pass.n * outputs(), static_cast<const float*>(body.y),
               static_cast<const float*>(shortcut_.is_identity() ? memory.x : shortcut.y), relu_,
               static_cast<float*>(memory.y));
}

void Residual::Backward(const Pass& pass, const LayerMemory& memory, void* dy, void* dx) {
  const LayerMemory body = BodyMemory(memory), shortcut = ShortcutMemory(memory);
  const int64_t count = pass.n * outputs();
  auto* gradient = static_cast<float*>(dy);
  if (relu_ && pass.n > 0) backend_.MaskGradient(count, static_cast<const float*>(memory.y), gradient);
  // Both branches get the gradient; a copy is made when the first would spoil it.
  auto* kept = gradient;
  if (pass.n > 0 && !body_.keeps_gradient()) {
    kept = static_cast<float*>(memory.scratch);
    backend_.Copy(count, gradient, kept);
  }
  body_.Backward(pass, body, gradient, dx, {});
  const float* other = kept;
  if (!shortcut_.is_identity()) {
    void* const own = At(memory.scratch, BytesOf(max_batch_ * body_.outputs()));
    shortcut_.Backward(pass, shortcut, kept, dx == nullptr ? nullptr : own, {});
    other = static_cast<const float*>(own);
  }
  if (dx == nullptr || pass.n == 0) return;
  backend_.Add(pass.n * inputs_, static_cast<const float*>(dx), other, /*relu=*/false,
               static_cast<float*>(dx));
}

}  // namespace lockstep::trainer
