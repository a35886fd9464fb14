#pragma once

#include <memory>
#include <vector>

#include "trainer/backend/backend.h"
#include "trainer/layers/plain_layer.h"

namespace lockstep::trainer {

// y = activation(x · kernel + bias), kernel [inputs, units]; inputs of any shape, taken as one row.
class Dense final : public PlainLayer {
 public:
  Dense(const LayerConfig& config, const LayerContext& context, Backend& backend);

  DataType output_type() const override { return options_.output; }
  DataType output_gradient_type() const override { return options_.input; }

  void FromCanonical(int index, const float* canonical, float* stored) const override;
  void ToCanonical(int index, const float* stored, float* canonical) const override;

  void Bind(const std::vector<BoundVariable>& variables) override;
  void ParametersChanged(int index, int64_t begin, int64_t end) override;
  BFloat16* rounded(int index) const override;

  void Forward(const Pass& pass, const LayerMemory& memory) override {
    kernel_->Forward(pass.n, memory.x, memory.y);
  }
  void Backward(const Pass& pass, const LayerMemory& memory, void* dy, void* dx) override {
    kernel_->Backward(pass.n, memory.x, memory.y, dy, dx);
  }

 private:
  DenseOptions options_;
  std::unique_ptr<ProductKernel> kernel_;
};

LayerFacts DenseFacts(const LayerConfig& config, const Shape& input);

}  // namespace lockstep::trainer
