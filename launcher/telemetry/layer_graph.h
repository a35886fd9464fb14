#pragma once

#include <span>
#include <vector>

#include "common/contract/event.h"
#include "launcher/telemetry/tensorboard_event.h"

namespace lockstep::telemetry {

// What a launcher's ranks have said of their layers, rank after rank, as a graph: the inputs and one layer
// after the other, each with its device. Where several ranks have the whole model there are as many copies,
// "replica_0/dense", "replica_1/dense" …; ranks that have a part each follow one another and make one copy
// together. Empty when nobody has said anything.
std::vector<GraphNode> LayerGraph(std::span<const std::vector<contract::LayerEvent>> ranks);

}  // namespace lockstep::telemetry
