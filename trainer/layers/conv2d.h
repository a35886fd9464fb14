#pragma once

#include <memory>
#include <vector>

#include "trainer/backend/backend.h"
#include "trainer/layers/plain_layer.h"

namespace lockstep::trainer {

// y = activation(x * kernel + bias), kernel [height, width, channels, filters]; ReLU is part of it.
class Conv2D final : public PlainLayer {
 public:
  Conv2D(const LayerConfig& config, const LayerContext& context, Backend& backend);

  void FromCanonical(int index, const float* canonical, float* stored) const override;
  void ToCanonical(int index, const float* stored, float* canonical) const override;
  void Bind(const std::vector<BoundVariable>& variables) override;
  void ParametersChanged(int index, int64_t begin, int64_t end) override;
  void Forward(const Pass& pass, const LayerMemory& memory) override {
    kernel_->Forward(pass.n, memory.x, memory.y);
  }
  void Backward(const Pass& pass, const LayerMemory& memory, void* dy, void* dx) override {
    kernel_->Backward(pass.n, memory.x, memory.y, dy, dx);
  }
  bool keeps_gradient() const override { return keeps_gradient_; }

 private:
  bool keeps_gradient_;
  std::unique_ptr<ProductKernel> kernel_;
};

LayerFacts Conv2DFacts(const LayerConfig& config, const Shape& input);

}  // namespace lockstep::trainer
