#pragma once

#include <string>

#include "trainer/layers/block.h"

namespace lockstep::trainer {

// y = activation(body(x) + shortcut(x)), activation ReLU or none (He, Zhang, Ren, Sun: Deep Residual Learning
// for Image Recognition, equations 1 and 2).
class Residual final : public Block {
 public:
  Residual(const LayerConfig& config, const LayerContext& context, Backend& backend);

  const Shape& output_shape() const override { return body_.output_shape(); }
  size_t saved_bytes() const override;
  size_t scratch_bytes() const override;
  void Forward(const Pass& pass, const LayerMemory& memory) override;
  void Backward(const Pass& pass, const LayerMemory& memory, void* dy, void* dx) override;

 private:
  LayerMemory BodyMemory(const LayerMemory& memory) const;
  LayerMemory ShortcutMemory(const LayerMemory& memory) const;

  Backend& backend_;
  bool relu_;
  int64_t inputs_;
  int64_t max_batch_;
  Stack body_;
  Stack shortcut_;  // with no layer: x itself
};

LayerFacts ResidualFacts(const LayerConfig& config, const Shape& input);

}  // namespace lockstep::trainer
