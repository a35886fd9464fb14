#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "trainer/layers/layer.h"
#include "trainer/layers/layer_config.h"

namespace lockstep::trainer {

// What the kinds of layer have in common that compute in one type and keep their variables row-major
// unless they say otherwise.
class PlainLayer : public Layer {
 public:
  const std::string& name() const override { return name_; }
  const Shape& output_shape() const override { return facts_.output; }
  DataType output_type() const override { return type_; }
  DataType output_gradient_type() const override { return type_; }
  const std::vector<VariableSpec>& variables() const override { return facts_.variables; }
  // Of products, the gradients of the inputs and of the kernel take as much as the outputs.
  int64_t training_flops() const override { return (input_gradient_ ? 3 : 2) * facts_.forward_flops; }

  void FromCanonical(int index, const float* canonical, float* stored) const override {
    std::copy_n(canonical, SizeOfVariable(index), stored);
  }
  void ToCanonical(int index, const float* stored, float* canonical) const override {
    std::copy_n(stored, SizeOfVariable(index), canonical);
  }
  void Bind(const std::vector<BoundVariable>& /*variables*/) override {}
  void ParametersChanged(int /*index*/, int64_t /*begin*/, int64_t /*end*/) override {}

 protected:
  PlainLayer(const LayerConfig& config, const LayerContext& context)
      : name_(config.name),
        type_(context.compute),
        input_gradient_(context.input_gradient),
        facts_(FactsOf(config, context.input)) {
    for (VariableSpec& variable : facts_.variables) variable.stored_size = variable.shape.num_elements();
  }

  int64_t SizeOfVariable(int index) const {
    return facts_.variables[static_cast<size_t>(index)].shape.num_elements();
  }

  std::string name_;
  DataType type_;
  bool input_gradient_;
  LayerFacts facts_;
};

}  // namespace lockstep::trainer
