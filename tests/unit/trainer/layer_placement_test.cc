#include "trainer/layer_placement.h"

#include <gtest/gtest.h>

namespace lockstep::trainer {
namespace {

// 784–256–256–10, as the guides have it.
std::vector<LayerConfig> Layers() {
  return {
      {.name = "dense", .units = 256}, {.name = "dense_1", .units = 256}, {.name = "dense_2", .units = 10}};
}

using Placed = std::map<std::string, std::string>;

TEST(LayerPlacementTest, WithoutARuleEverythingIsOnTheOwnDevice) {
  EXPECT_EQ(PlaceLayers(Layers(), {.own_device = "GPU:2", .sample = {784}}),
            (Placed{{"dense", "GPU:2"}, {"dense_1", "GPU:2"}, {"dense_2", "GPU:2"}}));
}

TEST(LayerPlacementTest, TheFirstRuleThatMatchesDecides) {
  EXPECT_EQ(PlaceLayers(Layers(), {.rules = {{"dense_2", "GPU:1"}, {"dense_*", "CPU:0"}},
                                   .own_device = "GPU:0",
                                   .sample = {784}}),
            (Placed{{"dense", "GPU:0"}, {"dense_1", "CPU:0"}, {"dense_2", "GPU:1"}}));
}

TEST(LayerPlacementTest, RoundRobinTakesTheDevicesInTurn) {
  EXPECT_EQ(PlaceLayers(Layers(), {.variables = VariablePlacement::kRoundRobin,
                                   .own_device = "GPU:0",
                                   .devices = {"GPU:0", "GPU:1"},
                                   .sample = {784}}),
            (Placed{{"dense", "GPU:0"}, {"dense_1", "GPU:1"}, {"dense_2", "GPU:0"}}));
}

// The first layer has 803,840 bytes, the second 263,168, the third 10,280.
TEST(LayerPlacementTest, LeastLoadedCountsBytes) {
  EXPECT_EQ(PlaceLayers(Layers(), {.variables = VariablePlacement::kLeastLoaded,
                                   .own_device = "GPU:0",
                                   .devices = {"GPU:0", "GPU:1"},
                                   .sample = {784}}),
            (Placed{{"dense", "GPU:0"}, {"dense_1", "GPU:1"}, {"dense_2", "GPU:1"}}));
}

TEST(LayerPlacementTest, WhatARulePlacesCountsAsLoad) {
  EXPECT_EQ(PlaceLayers(Layers(), {.rules = {{"dense", "GPU:1"}},
                                   .variables = VariablePlacement::kLeastLoaded,
                                   .own_device = "GPU:0",
                                   .devices = {"GPU:0", "GPU:1"},
                                   .sample = {784}}),
            (Placed{{"dense", "GPU:1"}, {"dense_1", "GPU:0"}, {"dense_2", "GPU:0"}}));
}

TEST(LayerPlacementTest, WithNothingToSpreadOverTheOwnDeviceIsTaken) {
  EXPECT_EQ(
      PlaceLayers(Layers(),
                  {.variables = VariablePlacement::kRoundRobin, .own_device = "CPU:0", .sample = {784}}),
      (Placed{{"dense", "CPU:0"}, {"dense_1", "CPU:0"}, {"dense_2", "CPU:0"}}));
}

}  // namespace
}  // namespace lockstep::trainer
