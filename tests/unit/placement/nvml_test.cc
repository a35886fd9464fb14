#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "launcher/placement/discover.h"
#include "launcher/placement/nvml_library.h"
#include "tests/paths.h"

namespace lockstep::placement {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Fake(const std::string& table) {
  return std::string(FAKE_NVML_DIR) + "/" + table + "/libnvidia-ml.so.1";
}

Inventory With(const std::string& library) {
  return Discover({.root = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/testdata/machines/two_sockets",
                   .nvml_library = library});
}

TEST(NvmlTest, ReadsEightGpusAndTheirNodes) {
  const Inventory inventory = With(Fake("eight_h100"));
  ASSERT_EQ(inventory.gpus.size(), 8u);
  EXPECT_EQ(inventory.driver_version, "580.65.06");
  EXPECT_THAT(inventory.notes, IsEmpty());
  const Gpu& last = inventory.gpus[7];
  EXPECT_EQ(last.index, 7);
  EXPECT_EQ(last.uuid, "GPU-77777777-4e2c-5a1b-9d3f-0123456789ab");
  EXPECT_EQ(last.name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(last.memory_bytes, 85520809984);
  EXPECT_EQ(last.pci_bus_id, "0000:db:00.0");
  EXPECT_EQ(last.numa_node, 1);
  EXPECT_EQ(inventory.gpus[0].numa_node, 0);
  EXPECT_FALSE(last.mig);
  EXPECT_EQ(last.error, "");
}

TEST(NvmlTest, ReadsMigSlicesAcrossGapsInTheirIndices) {
  const Inventory inventory = With(Fake("a100_mig"));
  ASSERT_EQ(inventory.gpus.size(), 2u);
  ASSERT_EQ(inventory.gpus[0].slices.size(), 3u);
  EXPECT_EQ(inventory.gpus[0].slices[1].name, "NVIDIA A100-SXM4-40GB MIG 2g.10gb");
  EXPECT_EQ(inventory.gpus[0].slices[2].memory_bytes, 5100273664);
  EXPECT_THAT(inventory.gpus[0].slices[2].uuid, HasSubstr("MIG-6a6b"));
  // A container may not ask for the memory of the whole; its slices are usable all the same.
  EXPECT_EQ(inventory.gpus[0].error, "");
  EXPECT_EQ(inventory.gpus[0].memory_bytes, 0);
  EXPECT_FALSE(inventory.gpus[1].mig);
  EXPECT_THAT(inventory.gpus[1].slices, IsEmpty());
}

TEST(NvmlTest, KeepsAPciDomainAndLivesWithoutMig) {
  const Inventory inventory = With(Fake("one_t4"));
  ASSERT_EQ(inventory.gpus.size(), 1u);
  EXPECT_EQ(inventory.gpus[0].pci_bus_id, "0001:00:1e.0");
  EXPECT_EQ(inventory.gpus[0].numa_node, -1);
  EXPECT_FALSE(inventory.gpus[0].mig);
}

TEST(NvmlTest, UsesAGpuWithoutMemoryOfItsOwn) {
  const Inventory inventory = With(Fake("unified_gb10"));
  ASSERT_EQ(inventory.gpus.size(), 1u);
  EXPECT_EQ(inventory.gpus[0].error, "");
  EXPECT_EQ(inventory.gpus[0].memory_bytes, 0);
  EXPECT_THAT(inventory.notes, IsEmpty());
}

TEST(NvmlTest, KeepsALostGpusPlaceAndSaysSo) {
  const Inventory inventory = With(Fake("lost_gpu"));
  ASSERT_EQ(inventory.gpus.size(), 4u);
  EXPECT_EQ(inventory.gpus[0].error, "");
  EXPECT_THAT(inventory.gpus[1].error, HasSubstr("GPU is lost"));
  EXPECT_THAT(inventory.gpus[2].error, HasSubstr("GPU is lost"));
  EXPECT_EQ(inventory.gpus[3].index, 3);
  EXPECT_EQ(inventory.gpus[3].error, "");
  EXPECT_THAT(inventory.notes,
              ElementsAre(HasSubstr("GPU 1 cannot be used"), HasSubstr("GPU 2 cannot be used")));
}

TEST(NvmlTest, SaysWhenThereIsNoDriver) {
  const Inventory without = With("libno-such-driver.so.1");
  EXPECT_THAT(without.gpus, IsEmpty());
  EXPECT_THAT(without.notes, ElementsAre("no NVIDIA driver (libno-such-driver.so.1 not found)"));
  EXPECT_THAT(With(Fake("no_driver")).notes, ElementsAre("no NVIDIA driver (nvmlInit: Driver Not Loaded)"));
}

TEST(NvmlTest, IsNotOpenedWhenNobodyAsks) {
  const Inventory inventory = Discover({.gpus = false, .nvml_library = Fake("eight_h100")});
  EXPECT_THAT(inventory.gpus, IsEmpty());
  EXPECT_THAT(inventory.notes, IsEmpty());
}

TEST(NvmlTest, RefusesALibraryThatIsSomethingElse) {
  const auto library = NvmlLibrary::Open("libc.so.6");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(library.status().message(), HasSubstr("functions are missing"));
}

TEST(NvmlTest, SurvivesMovesOntoItselfAndOntoAnother) {
  auto one = NvmlLibrary::Open(Fake("eight_h100"));
  auto other = NvmlLibrary::Open(Fake("one_t4"));
  ASSERT_TRUE(one.ok() && other.ok());
  NvmlLibrary& self = *one;
  *one = std::move(self);
  ASSERT_EQ(*one->DeviceCount(), 8);
  *one = std::move(*other);
  EXPECT_EQ(*one->DeviceCount(), 1);
}

}  // namespace
}  // namespace lockstep::placement
