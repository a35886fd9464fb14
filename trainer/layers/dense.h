#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/layers/layer.h"
#include "trainer/layers/layer_config.h"

namespace lockstep::trainer {

// y = activation(x · kernel + bias), kernel [inputs, units].
class Dense final : public Layer {
 public:
  Dense(const LayerConfig& config, const LayerContext& context, Backend& backend);

  const std::string& name() const override { return name_; }
  int64_t outputs() const override { return options_.units; }
  DataType output_type() const override { return options_.output; }
  DataType output_gradient_type() const override { return options_.input; }
  const std::vector<VariableSpec>& variables() const override { return variables_; }
  int64_t training_flops() const override;

  void FromCanonical(int index, const float* canonical, float* stored) const override;
  void ToCanonical(int index, const float* stored, float* canonical) const override;

  void Bind(const std::vector<BoundVariable>& variables) override;
  void ParametersChanged(int index, int64_t begin, int64_t end) override;
  BFloat16* rounded(int index) const override;

  void Forward(int64_t n, const void* x, void* y) override { kernel_->Forward(n, x, y); }
  void Backward(int64_t n, const void* x, const void* y, void* dy, void* dx) override {
    kernel_->Backward(n, x, y, dy, dx);
  }

 private:
  std::string name_;
  DenseOptions options_;
  std::unique_ptr<DenseKernel> kernel_;
  std::vector<VariableSpec> variables_;
};

}  // namespace lockstep::trainer
