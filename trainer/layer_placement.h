#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/model/model_config.h"

namespace lockstep::trainer {

// Where variables, and with them the layers that compute with them, are put when nobody says it layer by
// layer.
enum class VariablePlacement {
  kAuto,         // all on the process's own device
  kCpu,          // the variables on the CPU; the layers compute on the process's own device
  kRoundRobin,   // each layer on the next device
  kLeastLoaded,  // each layer on the device that has the fewest bytes of variables so far, the first of
                 // equals
};

// "dense_2" or a pattern ("dense*"), and a device.
struct PlacementRule {
  std::string match;
  std::string device;
};

struct LayerPlacementRequest {
  std::vector<PlacementRule> rules = {};  // the first that matches a layer decides
  VariablePlacement variables = VariablePlacement::kAuto;
  std::string own_device = {};            // "GPU:0"
  std::vector<std::string> devices = {};  // to spread over
  Shape sample = {};                      // of the model's input
};

// The device of each layer by its name.
std::map<std::string, std::string> PlaceLayers(const std::vector<LayerConfig>& layers,
                                               const LayerPlacementRequest& request);

}  // namespace lockstep::trainer
