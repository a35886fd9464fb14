#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/error.h"
#include "trainer/strategy/buckets.h"
#include "trainer/strategy/device_ops.h"

// What is decided before any GPU is asked for anything.
namespace lockstep::trainer::strategy {
namespace {

using collectives::DeviceOps;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Layers, the last first, each a kernel of so many floats and a bias of 16.
ParameterLayout Layers(const std::vector<int64_t>& kernels) {
  ParameterLayout layout;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const std::string name = "dense_" + std::to_string(kernels.size() - i);
    for (const auto& [variable, size] : {std::pair{"/kernel", kernels[i]}, std::pair{"/bias", int64_t{16}}}) {
      layout.variables.push_back({.name = name + variable, .offset = layout.total, .size = size});
      layout.total += size;
    }
  }
  return layout;
}

std::vector<size_t> Ends(const std::vector<collectives::Range>& buckets) {
  std::vector<size_t> ends;
  size_t begin = 0;
  for (const collectives::Range& bucket : buckets) {
    EXPECT_EQ(bucket.begin, begin);
    begin = bucket.end;
    ends.push_back(bucket.end);
  }
  return ends;
}

TEST(BucketsTest, AreCutAtLayersAboutTheTarget) {
  const size_t never = 1'000'000;
  EXPECT_THAT(Ends(CutIntoBuckets(Layers({84, 84, 84, 84}), 1000, never)), ElementsAre(400));
  EXPECT_THAT(Ends(CutIntoBuckets(Layers({84, 84, 84, 84}), 100, never)), ElementsAre(100, 200, 300, 400));
  EXPECT_THAT(Ends(CutIntoBuckets(Layers({84, 84, 84, 84}), 200, never)), ElementsAre(200, 400));
  EXPECT_THAT(Ends(CutIntoBuckets(Layers({84, 84, 84, 84}), 190, never)), ElementsAre(200, 400)) << "nearer";
  EXPECT_THAT(Ends(CutIntoBuckets(Layers({984, 84, 84}), 200, never)), ElementsAre(1000, 1200));
  EXPECT_THAT(Ends(CutIntoBuckets(Layers({34, 984, 34}), 200, never)), ElementsAre(50, 1050, 1100));
}

TEST(BucketsTest, AreTwoAtLeastWhereThatPays) {
  EXPECT_THAT(Ends(CutIntoBuckets(Layers({84, 84, 84, 84}), 1000, 400)), ElementsAre(200, 400));
  EXPECT_THAT(Ends(CutIntoBuckets(Layers({84, 84, 84, 84}), 1000, 401)), ElementsAre(400));
  EXPECT_THAT(Ends(CutIntoBuckets(Layers({34, 984}), 5000, 100)), ElementsAre(50, 1050));
  EXPECT_THAT(Ends(CutIntoBuckets(Layers({984}), 5000, 100)), ElementsAre(1000)) << "no border";
}

std::string Refusal(CrossDeviceOps asked, const World& world, const std::vector<RankDevice>& devices) {
  try {
    ChooseDeviceOps(asked, world, devices);
  } catch (const Unsupported& error) {
    return error.what();
  }
  return "accepted";
}

TEST(DeviceOpsTest, AutoIsNcclUnlessRanksOfOneMachineShareAGpu) {
  const World one{.size = 3, .local_size = 3}, two{.size = 4, .local_size = 2, .group_size = 2};
  const std::vector<RankDevice> own{{"GPU-a"}, {"GPU-b"}, {"GPU-c"}}, shared{{"GPU-a"}, {"GPU-b"}, {"GPU-a"}};
  const DeviceOpsChoice apart = ChooseDeviceOps(CrossDeviceOps::kAuto, one, own);
  EXPECT_EQ(apart.ops, DeviceOps::kNccl);
  EXPECT_FALSE(apart.shared_devices);

  const DeviceOpsChoice together = ChooseDeviceOps(CrossDeviceOps::kAuto, one, shared);
  EXPECT_EQ(together.ops, DeviceOps::kHierarchicalCopy);
  EXPECT_TRUE(together.shared_devices);
  EXPECT_EQ(together.why, "ranks 0 and 2 share GPU-a");

  const std::vector<RankDevice> machines{{"GPU-a"}, {"GPU-a"}, {"GPU-b"}, {"GPU-b"}};
  EXPECT_EQ(ChooseDeviceOps(CrossDeviceOps::kAuto, two, machines).ops, DeviceOps::kNccl)
      << "nothing else reaches from machine to machine";
  EXPECT_TRUE(ChooseDeviceOps(CrossDeviceOps::kNccl, one, shared).shared_devices);
}

TEST(DeviceOpsTest, SlicesOfOneGpuAreSharedAsTheLauncherSays) {
  const World one{.size = 2, .local_size = 2};
  const std::vector<RankDevice> slices{{"MIG-a", true}, {"MIG-b", true}};
  const DeviceOpsChoice choice = ChooseDeviceOps(CrossDeviceOps::kAuto, one, slices);
  EXPECT_EQ(choice.ops, DeviceOps::kHierarchicalCopy);
  EXPECT_TRUE(choice.shared_devices);
  EXPECT_EQ(choice.why, "rank 0 shares the GPU of MIG-a");
}

TEST(DeviceOpsTest, WhatDoesNotFitIsRefused) {
  const World one{.size = 2, .local_size = 2}, two{.size = 2, .group_size = 2};
  const std::vector<RankDevice> own{{"GPU-a"}, {"GPU-b"}};
  EXPECT_EQ(Refusal(CrossDeviceOps::kReductionToOneDevice, one, own), "accepted");
  EXPECT_THAT(Refusal(CrossDeviceOps::kReductionToOneDevice, two, own), HasSubstr("NCCL would be right"));
  EXPECT_THAT(Refusal(CrossDeviceOps::kHierarchicalCopy, two, own), HasSubstr("is for one machine"));
  EXPECT_THAT(Refusal(CrossDeviceOps::kGloo, one, own), HasSubstr("Gloo"));
  EXPECT_THAT(Refusal(CrossDeviceOps::kSharedMemory, one, own), HasSubstr("Auto would be right"));
}

}  // namespace
}  // namespace lockstep::trainer::strategy
