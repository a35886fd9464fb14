#include "launcher/placement/discover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>

#include "tests/paths.h"

namespace lockstep::placement {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Inventory Recorded(const std::string& machine) {
  return Discover({.root = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/testdata/machines" / machine,
                   .gpus = false});
}

std::vector<int> Ids(const Inventory& inventory) {
  std::vector<int> ids;
  for (const Cpu& cpu : inventory.cpus) ids.push_back(cpu.id);
  return ids;
}

TEST(DiscoverTest, ReadsTwoSocketsWithHyperthreads) {
  const Inventory inventory = Recorded("two_sockets");
  ASSERT_EQ(inventory.cpus.size(), 16u);
  EXPECT_EQ(PhysicalCores(inventory), 8);
  EXPECT_EQ(UsableCores(inventory), 8);
  EXPECT_EQ(inventory.cpus[0].node, 0);
  EXPECT_EQ(inventory.cpus[4].node, 1);
  EXPECT_EQ(inventory.cpus[12].node, 1);
  EXPECT_EQ(inventory.cpus[12].core, inventory.cpus[4].core);
  EXPECT_EQ(inventory.cpu_quota, std::nullopt);
  EXPECT_EQ(inventory.memory_limit, std::nullopt);
  EXPECT_EQ(inventory.memory_bytes, int64_t{256} << 30);
  EXPECT_EQ(inventory.cpu_model, "Intel(R) Xeon(R) Platinum 8480+");
  EXPECT_THAT(inventory.cpu_features, Contains("amx_bf16"));
  EXPECT_THAT(inventory.cpu_features, Contains("avx512_bf16"));
  EXPECT_THAT(inventory.notes, IsEmpty());
}

TEST(DiscoverTest, HonoursTheQuotaOfAVersion1Container) {
  const Inventory inventory = Recorded("container_v1");
  EXPECT_EQ(inventory.cpu_quota, 1.5);
  EXPECT_EQ(PhysicalCores(inventory), 4);
  EXPECT_EQ(UsableCores(inventory), 1);
  EXPECT_EQ(inventory.memory_limit, int64_t{2} << 30);
  EXPECT_EQ(UsableMemory(inventory), int64_t{2} << 30);
  EXPECT_THAT(inventory.cpu_features, Not(Contains("avx512_bf16")));
}

TEST(DiscoverTest, HonoursTheTightestQuotaOfAllLevelsOfVersion2) {
  const Inventory inventory = Recorded("container_v2");
  EXPECT_EQ(inventory.cpu_quota, 1.5);
  EXPECT_EQ(UsableCores(inventory), 1);
  EXPECT_EQ(inventory.memory_limit, int64_t{1} << 30);
}

TEST(DiscoverTest, CountsASingleCoreWithoutTopologyOrCgroups) {
  const Inventory inventory = Recorded("single_core");
  EXPECT_THAT(Ids(inventory), ElementsAre(0));
  EXPECT_EQ(UsableCores(inventory), 1);
  EXPECT_EQ(inventory.cpu_quota, std::nullopt);
}

// Affinity 1-2,5-7; online 0-6; cpuset 1,2,5,7.
TEST(DiscoverTest, TakesWhatAffinityAndCpusetBothAllow) {
  const Inventory inventory = Recorded("cpuset_three");
  EXPECT_THAT(Ids(inventory), ElementsAre(1, 2, 5));
  EXPECT_EQ(PhysicalCores(inventory), 2);
  EXPECT_EQ(inventory.cpu_quota, std::nullopt);
  EXPECT_EQ(inventory.memory_limit, std::nullopt);
}

TEST(DiscoverTest, AssumesOneCpuWhereNothingCanBeRead) {
  const Inventory inventory = Discover({.root = "/nonexistent", .gpus = false});
  EXPECT_EQ(UsableCores(inventory), 1);
  EXPECT_THAT(inventory.notes, ElementsAre(HasSubstr("one is assumed")));
}

TEST(DiscoverTest, AgreesWithTheKernelAboutThisMachine) {
  const Inventory inventory = Discover({.gpus = false});
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
  for (const int id : Ids(inventory)) EXPECT_TRUE(CPU_ISSET(id, &mask)) << id;
  EXPECT_GT(inventory.memory_bytes, 0);
}

// `lockstep run` has 30 ms for everything; the best of several, since other tests run beside this one.
TEST(DiscoverTest, TakesAFewMilliseconds) {
  auto best = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 10; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Inventory inventory = Discover({.nvml_library = "libno-such-driver.so.1"});
    best = std::min(best, std::chrono::steady_clock::now() - start);
    ASSERT_FALSE(inventory.cpus.empty());
  }
  EXPECT_LT(best, std::chrono::milliseconds(5));
}

}  // namespace
}  // namespace lockstep::placement
