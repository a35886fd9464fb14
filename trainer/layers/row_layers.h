#pragma once

#include <memory>
#include <vector>

#include "trainer/backend/backend.h"
#include "trainer/layers/plain_layer.h"

namespace lockstep::trainer {

// LayerNormalization and Embedding; see RowKernel.
class RowLayer final : public PlainLayer {
 public:
  RowLayer(const LayerConfig& config, const LayerContext& context, Backend& backend);

  void Bind(const std::vector<BoundVariable>& variables) override;
  void Forward(const Pass& pass, const LayerMemory& memory) override {
    kernel_->Forward(pass.n, static_cast<const float*>(memory.x), static_cast<float*>(memory.y));
  }
  void Backward(const Pass& pass, const LayerMemory& memory, void* dy, void* dx) override {
    kernel_->Backward(pass.n, static_cast<const float*>(memory.x), static_cast<const float*>(dy),
                      static_cast<float*>(dx));
  }
  bool keeps_gradient() const override { return true; }

 private:
  std::vector<size_t> places_;  // of each variable among the kernel's
  std::unique_ptr<RowKernel> kernel_;
};

LayerFacts EmbeddingFacts(const LayerConfig& config, const Shape& input);

}  // namespace lockstep::trainer
