#pragma once

#include <memory>

#include "trainer/backend/backend.h"
#include "trainer/layers/layer.h"
#include "trainer/layers/layer_config.h"
#include "trainer/tensor/buffer.h"

namespace lockstep::trainer {

// A layer that computes on another device than its model: what it reads is copied there and what it makes is
// copied back, through the host. The variables that count, their gradients and the optimizer's state stay
// with the model; the other device has a copy of the variables, renewed when they changed.
class PlacedLayer final : public Layer {
 public:
  // `layer` was made for `there` with `context`; `home` is the model's. Both backends outlive it. Throws
  // OutOfMemory, and Unsupported for several passes in flight.
  PlacedLayer(std::unique_ptr<Layer> layer, const LayerContext& context, Backend& home, Backend& there);

  const std::string& name() const override { return layer_->name(); }
  const Shape& output_shape() const override { return layer_->output_shape(); }
  DataType output_type() const override { return layer_->output_type(); }
  DataType output_gradient_type() const override { return layer_->output_gradient_type(); }
  const std::vector<VariableSpec>& variables() const override { return layer_->variables(); }
  int64_t training_flops() const override { return layer_->training_flops(); }
  void FromCanonical(int index, const float* canonical, float* stored) const override {
    layer_->FromCanonical(index, canonical, stored);
  }
  void ToCanonical(int index, const float* stored, float* canonical) const override {
    layer_->ToCanonical(index, stored, canonical);
  }

  bool sums_over_replicas() const override { return layer_->sums_over_replicas(); }
  std::vector<StateSpec> state() const override { return layer_->state(); }
  void ExportState(int index, float* to) const override { layer_->ExportState(index, to); }
  void ImportState(int index, const float* from) override { layer_->ImportState(index, from); }
  bool state_differs() const override { return layer_->state_differs(); }

  void Bind(const std::vector<BoundVariable>& variables) override;
  void ParametersChanged(int index, int64_t begin, int64_t end) override;
  void Forward(const Pass& pass, const LayerMemory& memory) override;
  void Backward(const Pass& pass, const LayerMemory& memory, void* dy, void* dx) override;

 private:
  // A variable's copy on the other device, and its range that is out of date.
  struct Copy {
    Buffer value;
    Buffer gradient;
    int64_t stale_begin = 0;
    int64_t stale_end = 0;
  };

  void Send(const void* from_home, void* to_there, size_t bytes);
  void Fetch(const void* from_there, void* to_home, size_t bytes);
  void RenewVariables();
  LayerMemory MemoryThere() const;
  size_t InputBytes(int64_t n) const { return static_cast<size_t>(n * inputs_) * SizeOf(input_type_); }
  size_t OutputBytes(int64_t n, DataType type) const {
    return static_cast<size_t>(n * outputs()) * SizeOf(type);
  }

  std::unique_ptr<Layer> layer_;
  Backend& home_;
  Backend& there_;
  int64_t inputs_;
  DataType input_type_;
  std::vector<BoundVariable> bound_;
  std::vector<Copy> copies_;
  Buffer x_, y_, dy_, dx_, saved_, scratch_;  // on the other device
  Buffer staging_;                            // in the host's memory
};

}  // namespace lockstep::trainer
