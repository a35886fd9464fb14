#include "launcher/telemetry/layer_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace lockstep::telemetry {
namespace {

using contract::LayerEvent;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

LayerEvent Layer(int64_t index, const std::string& name, const std::string& device) {
  return {.index = index, .name = name, .type = "Dense", .output = "24,8", .device = device};
}

std::vector<std::string> NamesOf(const std::vector<GraphNode>& nodes) {
  std::vector<std::string> names;
  for (const GraphNode& node : nodes) names.push_back(node.name);
  return names;
}

TEST(LayerGraphTest, OneCopyIsAChainFromTheInputs) {
  const std::vector<LayerEvent> ranks[] = {{Layer(0, "a", "CPU:0"), Layer(1, "b", "GPU:0")}};
  const auto nodes = LayerGraph(ranks);
  EXPECT_THAT(NamesOf(nodes), ElementsAre("inputs", "a", "b"));
  EXPECT_THAT(nodes[0].inputs, IsEmpty());
  EXPECT_THAT(nodes[1].inputs, ElementsAre("inputs"));
  EXPECT_THAT(nodes[2].inputs, ElementsAre("a"));
  EXPECT_EQ(nodes[2].op, "Dense");
  EXPECT_EQ(nodes[1].device, "CPU:0");
  EXPECT_EQ(nodes[2].device, "GPU:0");
  EXPECT_THAT(nodes[2].output, ElementsAre(-1, 24, 8));
}

TEST(LayerGraphTest, RanksWithTheWholeModelAreCopies) {
  const std::vector<LayerEvent> ranks[] = {{Layer(0, "a", "x")}, {Layer(0, "a", "y")}};
  const auto nodes = LayerGraph(ranks);
  EXPECT_THAT(NamesOf(nodes),
              ElementsAre("replica_0/inputs", "replica_0/a", "replica_1/inputs", "replica_1/a"));
  EXPECT_THAT(nodes[3].inputs, ElementsAre("replica_1/inputs"));
  EXPECT_EQ(nodes[3].device, "y");
}

TEST(LayerGraphTest, StagesThatFollowOneAnotherAreOneCopy) {
  const std::vector<LayerEvent> ranks[] = {{Layer(0, "a", "x")}, {Layer(2, "c", "y"), Layer(1, "b", "y")}};
  const auto nodes = LayerGraph(ranks);
  EXPECT_THAT(NamesOf(nodes), ElementsAre("inputs", "a", "b", "c"));
  EXPECT_THAT(nodes[2].inputs, ElementsAre("a"));
}

TEST(LayerGraphTest, NamesAreMadeFitAndDiffer) {
  const std::vector<LayerEvent> ranks[] = {
      {Layer(0, "inputs", ""), Layer(1, "^a:0 b", ""), Layer(2, "", ""), Layer(3, "layer", "")}};
  EXPECT_THAT(NamesOf(LayerGraph(ranks)),
              ElementsAre("inputs", "inputs_1", "layer_a_0_b", "layer", "layer_1"));
}

TEST(LayerGraphTest, NothingSaidIsNoGraph) {
  const std::vector<LayerEvent> ranks[] = {{}, {}};
  EXPECT_THAT(LayerGraph(ranks), IsEmpty());
}

}  // namespace
}  // namespace lockstep::telemetry
