#pragma once

#include <cstdint>
#include <memory>

#include "trainer/backend/backend.h"
#include "trainer/layers/plain_layer.h"

namespace lockstep::trainer {

// In training each value goes with probability `rate`, and what stays is divided by 1 − rate; elsewhere it
// does nothing. Which values go follows from (seed, epoch, sample, the layer's name) alone.
class Dropout final : public PlainLayer {
 public:
  Dropout(const LayerConfig& config, const LayerContext& context, Backend& backend);

  size_t saved_bytes() const override { return saved_bytes_; }
  void Forward(const Pass& pass, const LayerMemory& memory) override;
  void Backward(const Pass& pass, const LayerMemory& memory, void* dy, void* dx) override;
  bool keeps_gradient() const override { return true; }

 private:
  Backend& backend_;
  uint32_t stream_;
  std::unique_ptr<DropoutKernel> kernel_;
  size_t saved_bytes_;
};

LayerFacts DropoutFacts(const LayerConfig& config, const Shape& input);

}  // namespace lockstep::trainer
