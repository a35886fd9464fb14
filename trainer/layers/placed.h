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
  // OutOfMemory.
  PlacedLayer(std::unique_ptr<Layer> layer, const LayerContext& context, Backend& home, Backend& there);

  const std::string& name() const override { return layer_->name(); }
  int64_t outputs() const override { return layer_->outputs(); }
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

  void Bind(const std::vector<BoundVariable>& variables) override;
  void ParametersChanged(int index, int64_t begin, int64_t end) override;
  void Forward(int64_t n, const void* x, void* y) override;
  void Backward(int64_t n, const void* x, const void* y, void* dy, void* dx) override;

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
  Buffer x_, y_, dy_, dx_;  // on the other device
  Buffer staging_;          // in the host's memory
};

}  // namespace lockstep::trainer
