#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/event_writer.h"
#include "trainer/layers/layer_config.h"
#include "trainer/model/model.h"
#include "trainer/process_environment.h"

namespace lockstep::trainer {

// The layers that a process has.
struct LayersHere {
  std::vector<LayerConfig> layers;  // of the whole model, with names
  Shape sample;                     // its inputs'
  std::optional<LayerRange> part;   // none: all
  // Among those that the process sees: "GPU:1".
  std::function<std::string(const LayerConfig& layer)> device_of;
};

// Tells the launcher of each, for the graph that TensorBoard shows (contract::LayerEvent). Blocks count as
// one layer.
void TellLayers(const LayersHere& here, const ProcessEnvironment& environment, EventWriter& events);

}  // namespace lockstep::trainer
