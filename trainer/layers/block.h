#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/layers/layer.h"
#include "trainer/layers/layer_config.h"
#include "trainer/layers/stack.h"

namespace lockstep::trainer {

// A layer made of layers: one stack or several, whose variables and state are its own, one after another.
class Block : public Layer {
 public:
  const std::string& name() const override { return name_; }
  DataType output_type() const override { return type_; }
  DataType output_gradient_type() const override { return type_; }
  const std::vector<VariableSpec>& variables() const override { return variables_; }
  int64_t training_flops() const override;
  bool sums_over_replicas() const override;
  bool state_differs() const override;

  void FromCanonical(int index, const float* canonical, float* stored) const override;
  void ToCanonical(int index, const float* stored, float* canonical) const override;
  std::vector<StateSpec> state() const override { return state_; }
  void ExportState(int index, float* to) const override;
  void ImportState(int index, const float* from) override;
  void Bind(const std::vector<BoundVariable>& variables) override;
  void ParametersChanged(int index, int64_t begin, int64_t end) override;

 protected:
  Block(const LayerConfig& config, const LayerContext& context);
  enum class Names { kOfLayers, kBare };
  // In the constructor, once for each stack. Variables are named "prefix" + "layer/variable", or only
  // "variable".
  void Own(Stack& stack, const std::string& prefix, Names names = Names::kOfLayers);

 private:
  // A variable or a piece of state: whose, and which of it.
  struct Place {
    Layer* layer = nullptr;
    int index = 0;
  };

  std::string name_;
  DataType type_;
  std::vector<Stack*> stacks_;
  std::vector<VariableSpec> variables_;
  std::vector<Place> variable_places_;
  std::vector<StateSpec> state_;
  std::vector<Place> state_places_;
};

// A layer and, behind it, an activation that its kernel does not do.
class Activated final : public Block {
 public:
  Activated(const LayerConfig& config, const LayerContext& context, Backend& backend);

  const Shape& output_shape() const override { return stack_.output_shape(); }
  size_t saved_bytes() const override { return stack_.saved_bytes(); }
  size_t scratch_bytes() const override { return stack_.scratch_bytes(); }
  void Forward(const Pass& pass, const LayerMemory& memory) override { stack_.Forward(pass, memory); }
  void Backward(const Pass& pass, const LayerMemory& memory, void* dy, void* dx) override {
    stack_.Backward(pass, memory, dy, dx, {});
  }

 private:
  Stack stack_;
};

}  // namespace lockstep::trainer
