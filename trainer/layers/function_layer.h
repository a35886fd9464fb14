#pragma once

#include <memory>

#include "trainer/backend/backend.h"
#include "trainer/layers/plain_layer.h"

namespace lockstep::trainer {

// A function of the activations without variables: MaxPool2D, AveragePool2D, GlobalAveragePool2D,
// LocalResponseNormalization, Activation. An Activation of None is an identity.
class FunctionLayer final : public PlainLayer {
 public:
  FunctionLayer(const LayerConfig& config, const LayerContext& context, Backend& backend);

  bool is_identity() const override { return kernel_ == nullptr; }
  size_t saved_bytes() const override { return saved_bytes_; }
  void Forward(const Pass& pass, const LayerMemory& memory) override {
    kernel_->Forward(pass.n, static_cast<const float*>(memory.x), static_cast<float*>(memory.y),
                     memory.saved);
  }
  void Backward(const Pass& pass, const LayerMemory& memory, void* dy, void* dx) override {
    if (dx == nullptr) return;
    kernel_->Backward(pass.n, static_cast<const float*>(memory.x), static_cast<const float*>(memory.y),
                      memory.saved, static_cast<float*>(dy), static_cast<float*>(dx));
  }
  bool keeps_gradient() const override { return true; }

 private:
  std::unique_ptr<FunctionKernel> kernel_;
  size_t saved_bytes_ = 0;
};

LayerFacts FunctionFacts(const LayerConfig& config, const Shape& input);

}  // namespace lockstep::trainer
