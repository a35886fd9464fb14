#include "trainer/layers/block.h"

#include <algorithm>

namespace lockstep::trainer {
namespace {

std::vector<LayerConfig> Apart(const LayerConfig& config) {
  LayerConfig plain = config;
  plain.activation = Activation::kNone;
  return {plain, {.kind = LayerKind::kActivation, .name = config.name, .activation = config.activation}};
}

LayerContext Within(LayerContext context) {
  context.place = nullptr;
  return context;
}

}  // namespace

Block::Block(const LayerConfig& config, const LayerContext& context)
    : name_(config.name), type_(context.compute) {}

void Block::Own(Stack& stack, const std::string& prefix, Names names) {
  stacks_.push_back(&stack);
  for (size_t i = 0; i < stack.size(); ++i) {
    Layer& layer = stack.layer(i);
    const std::string before = prefix + (names == Names::kOfLayers ? layer.name() + "/" : "");
    int index = 0;
    for (VariableSpec variable : layer.variables()) {
      variable.name = before + variable.name;
      variables_.push_back(std::move(variable));
      variable_places_.push_back({&layer, index++});
    }
    index = 0;
    for (StateSpec piece : layer.state()) {
      piece.name = before + piece.name;
      state_.push_back(std::move(piece));
      state_places_.push_back({&layer, index++});
    }
  }
}

int64_t Block::training_flops() const {
  int64_t sum = 0;
  for (const Stack* stack : stacks_) sum += stack->training_flops();
  return sum;
}

bool Block::sums_over_replicas() const {
  return std::any_of(stacks_.begin(), stacks_.end(),
                     [](const Stack* stack) { return stack->sums_over_replicas(); });
}

bool Block::state_differs() const {
  return std::any_of(stacks_.begin(), stacks_.end(),
                     [](const Stack* stack) { return stack->state_differs(); });
}

void Block::FromCanonical(int index, const float* canonical, float* stored) const {
  const Place& place = variable_places_[static_cast<size_t>(index)];
  place.layer->FromCanonical(place.index, canonical, stored);
}

void Block::ToCanonical(int index, const float* stored, float* canonical) const {
  const Place& place = variable_places_[static_cast<size_t>(index)];
  place.layer->ToCanonical(place.index, stored, canonical);
}

void Block::ExportState(int index, float* to) const {
  const Place& place = state_places_[static_cast<size_t>(index)];
  place.layer->ExportState(place.index, to);
}

void Block::ImportState(int index, const float* from) {
  const Place& place = state_places_[static_cast<size_t>(index)];
  place.layer->ImportState(place.index, from);
}

void Block::Bind(const std::vector<BoundVariable>& variables) {
  auto next = variables.begin();
  for (const Stack* stack : stacks_) {
    for (size_t i = 0; i < stack->size(); ++i) {
      const auto end = next + static_cast<std::ptrdiff_t>(stack->layer(i).variables().size());
      stack->layer(i).Bind({next, end});
      next = end;
    }
  }
}

void Block::ParametersChanged(int index, int64_t begin, int64_t end) {
  const Place& place = variable_places_[static_cast<size_t>(index)];
  place.layer->ParametersChanged(place.index, begin, end);
}

Activated::Activated(const LayerConfig& config, const LayerContext& context, Backend& backend)
    : Block(config, context), stack_(Apart(config), Within(context), backend) {
  Own(stack_, "", Names::kBare);
}

}  // namespace lockstep::trainer
