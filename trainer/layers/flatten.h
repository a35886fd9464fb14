#pragma once

#include "trainer/layers/plain_layer.h"

namespace lockstep::trainer {

// [height, width, channels] seen as [height · width · channels].
class Flatten final : public PlainLayer {
 public:
  Flatten(const LayerConfig& config, const LayerContext& context) : PlainLayer(config, context) {}

  bool is_identity() const override { return true; }
  void Forward(const Pass& /*pass*/, const LayerMemory& /*memory*/) override {}
  void Backward(const Pass& /*pass*/, const LayerMemory& /*memory*/, void* /*dy*/, void* /*dx*/) override {}
};

}  // namespace lockstep::trainer
