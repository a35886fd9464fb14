#include "trainer/layers/layer_config.h"

#include "trainer/layers/dense.h"

namespace lockstep::trainer {

std::unique_ptr<Layer> MakeLayer(const LayerConfig& config, const LayerContext& context, Backend& backend) {
  switch (config.kind) {
    case LayerKind::kDense:
      return std::make_unique<Dense>(config, context, backend);
  }
  return nullptr;
}

}  // namespace lockstep::trainer
