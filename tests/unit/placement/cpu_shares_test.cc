#include "launcher/placement/cpu_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/placement/text_files.h"
#include "tests/unit/placement/builders.h"

namespace lockstep::placement {
namespace {

using ::testing::ElementsAre;
using testing::Machine;

std::vector<std::string> Shares(const Inventory& inventory, const std::vector<int>& nodes) {
  std::vector<std::string> texts;
  for (const CpuShare& share : ShareCpus(inventory, nodes)) {
    texts.push_back(FormatNumberList(share.cpus) + "@" + std::to_string(share.node));
  }
  return texts;
}

std::vector<int> Cpus(size_t processes) { return std::vector<int>(processes, -1); }

TEST(ShareCpusTest, LeavesOneProcessTheWholeMachine) {
  EXPECT_THAT(Shares(Machine(2, 4), Cpus(1)), ElementsAre("@-1"));
  EXPECT_THAT(Shares(Machine(1, 4), {0}), ElementsAre("@-1"));
}

TEST(ShareCpusTest, KeepsALoneProcessToTheNodeOfItsGpu) {
  EXPECT_THAT(Shares(Machine(2, 4), {1}), ElementsAre("4-7@1"));
}

TEST(ShareCpusTest, DividesOneNodeWhereItComesOutEven) {
  EXPECT_THAT(Shares(Machine(1, 4), Cpus(2)), ElementsAre("0-1@0", "2-3@0"));
  EXPECT_THAT(Shares(Machine(1, 4), Cpus(4)), ElementsAre("0@0", "1@0", "2@0", "3@0"));
  EXPECT_THAT(Shares(Machine(1, 4), Cpus(3)), ElementsAre("@-1", "@-1", "@-1"));
  EXPECT_THAT(Shares(Machine(1, 2), Cpus(4)), ElementsAre("@-1", "@-1", "@-1", "@-1"));
}

TEST(ShareCpusTest, KeepsHyperthreadsTogether) {
  EXPECT_THAT(Shares(Machine(1, 2, 2), Cpus(2)), ElementsAre("0,2@0", "1,3@0"));
}

TEST(ShareCpusTest, KeepsEachProcessWithinANode) {
  EXPECT_THAT(Shares(Machine(2, 4), Cpus(2)), ElementsAre("0-3@0", "4-7@1"));
  EXPECT_THAT(Shares(Machine(2, 4), Cpus(4)), ElementsAre("0-1@0", "2-3@0", "4-5@1", "6-7@1"));
  EXPECT_THAT(Shares(Machine(2, 4), Cpus(3)), ElementsAre("0-1@0", "2-3@0", "4-7@1"));
  EXPECT_THAT(Shares(Machine(2, 1), Cpus(4)), ElementsAre("0@0", "0@0", "1@1", "1@1"));
}

TEST(ShareCpusTest, GivesWholeNodesToFewerProcesses) {
  EXPECT_THAT(Shares(Machine(4, 2), Cpus(2)), ElementsAre("0-3@-1", "4-7@-1"));
  EXPECT_THAT(Shares(Machine(4, 2), Cpus(3)), ElementsAre("@-1", "@-1", "@-1"));
}

TEST(ShareCpusTest, FollowsTheGpusNode) {
  EXPECT_THAT(Shares(Machine(2, 4), {1, 1, 0}), ElementsAre("4-5@1", "6-7@1", "0-3@0"));
  EXPECT_THAT(Shares(Machine(2, 4), {1, -1}), ElementsAre("4-7@1", "@-1"));
  // A node of which no CPU may be used.
  EXPECT_THAT(Shares(Machine(2, 4), {1, 7}), ElementsAre("4-7@1", "@-1"));
}

TEST(ShareCpusTest, BindsToNoCoreUnderAQuota) {
  Inventory one = Machine(1, 4);
  one.cpu_quota = 2;
  EXPECT_THAT(Shares(one, Cpus(2)), ElementsAre("@-1", "@-1"));
  Inventory two = Machine(2, 4);
  two.cpu_quota = 4;
  EXPECT_THAT(Shares(two, Cpus(2)), ElementsAre("@-1", "@-1"));
  EXPECT_THAT(Shares(two, {0, 0}), ElementsAre("0-3@0", "0-3@0"));
  two.cpu_quota = 8;  // no less than there is
  EXPECT_THAT(Shares(two, Cpus(2)), ElementsAre("0-3@0", "4-7@1"));
}

}  // namespace
}  // namespace lockstep::placement
