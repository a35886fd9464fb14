#include "trainer/layer_placement.h"

#include <fnmatch.h>

#include <algorithm>

namespace lockstep::trainer {
namespace {

const PlacementRule* RuleFor(const std::string& layer, const std::vector<PlacementRule>& rules) {
  const auto rule = std::find_if(rules.begin(), rules.end(), [&](const PlacementRule& candidate) {
    return ::fnmatch(candidate.match.c_str(), layer.c_str(), 0) == 0;
  });
  return rule == rules.end() ? nullptr : &*rule;
}

}  // namespace

std::map<std::string, std::string> PlaceLayers(const std::vector<LayerConfig>& layers,
                                               const LayerPlacementRequest& request) {
  std::map<std::string, std::string> placed;
  std::vector<int64_t> bytes(request.devices.size());
  size_t next = 0;
  Shape inputs = request.sample;
  for (const LayerConfig& layer : layers) {
    const LayerFacts facts = FactsOf(layer, inputs);
    int64_t size = 0;
    for (const VariableSpec& variable : facts.variables) {
      size += variable.shape.num_elements() * static_cast<int64_t>(sizeof(float));
    }
    inputs = facts.output;
    std::string device = request.own_device;
    if (const PlacementRule* rule = RuleFor(layer.name, request.rules)) {
      device = rule->device;
    } else if (request.variables == VariablePlacement::kRoundRobin && !request.devices.empty()) {
      device = request.devices[next++ % request.devices.size()];
    } else if (request.variables == VariablePlacement::kLeastLoaded && !request.devices.empty()) {
      device =
          request.devices[static_cast<size_t>(std::min_element(bytes.begin(), bytes.end()) - bytes.begin())];
    }
    const auto at = std::find(request.devices.begin(), request.devices.end(), device);
    if (at != request.devices.end()) bytes[static_cast<size_t>(at - request.devices.begin())] += size;
    placed.emplace(layer.name, device);
  }
  return placed;
}

}  // namespace lockstep::trainer
