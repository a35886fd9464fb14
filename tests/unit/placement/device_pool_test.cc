#include "launcher/placement/device_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/placement/builders.h"

namespace lockstep::placement {
namespace {

using ::testing::ElementsAre;
using testing::GpuMachine;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Joined;
using testing::MigMachine;
using testing::SliceUuid;
using testing::Uuid;

std::vector<std::string> Ids(const std::vector<PoolDevice>& devices) {
  std::vector<std::string> ids;
  for (const PoolDevice& device : devices) ids.push_back(device.id);
  return ids;
}

DevicePool Pool(const Inventory& inventory, const std::string& inherited) {
  return MakePool(inventory, {{"CUDA_VISIBLE_DEVICES", inherited}, {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}});
}

struct Choice {
  std::vector<std::string> ids;
  std::string error;
  std::string notices;
};

Choice Choose(const DevicePool& pool, const std::vector<std::string>& visible, bool soft = false) {
  std::vector<std::string> notices;
  const auto chosen = ChooseVisible(pool, visible, soft, "spec.devices.visible", notices);
  if (!chosen.ok()) return {.ids = {}, .error = chosen.status().message(), .notices = Joined(notices)};
  return {.ids = Ids(*chosen), .error = "", .notices = Joined(notices)};
}

TEST(DevicePoolTest, TakesAllByIndexWithoutAnInheritedList) {
  EXPECT_THAT(Ids(MakePool(GpuMachine(3), {}).devices), ElementsAre(Uuid(0), Uuid(1), Uuid(2)));
}

TEST(DevicePoolTest, KeepsTheOrderOfTheInheritedList) {
  const DevicePool pool = Pool(GpuMachine(4), "3, 2");
  EXPECT_THAT(Ids(pool.devices), ElementsAre(Uuid(3), Uuid(2)));
  EXPECT_THAT(pool.notices, IsEmpty());
}

TEST(DevicePoolTest, ReadsUuidsAndTheirUniquePrefixes) {
  EXPECT_THAT(Ids(Pool(GpuMachine(4), Uuid(2) + ",GPU-b").devices), ElementsAre(Uuid(2), Uuid(1)));
}

TEST(DevicePoolTest, LetsABadEntryHideItselfAndAllAfterIt) {
  const struct {
    const char* value;
    std::vector<std::string> ids;
    const char* notice;
  } kCases[] = {
      {"1,9,0", {Uuid(1)}, "\"9\" hides itself and all after it: there is no such GPU"},
      {"0,-1,1", {Uuid(0)}, "\"-1\" hides itself"},
      {"-1", {}, "\"-1\" hides itself"},
      {"0,0,1", {Uuid(0)}, "\"0\" hides itself and all after it: it stands twice"},
      {"0,GPU-", {Uuid(0)}, "it fits several GPUs"},
      {"GPU-zz,0", {}, "there is no such GPU"},
      {"1,NoDevFiles", {Uuid(1)}, "it is neither an index nor a UUID"},
      {"1,,0", {Uuid(1)}, "\"\" hides itself"},
      {"", {}, "is set and empty, so no GPU is used"},
  };
  for (const auto& test : kCases) {
    const DevicePool pool = Pool(GpuMachine(4), test.value);
    EXPECT_EQ(Ids(pool.devices), test.ids) << test.value;
    EXPECT_THAT(pool.notices, ElementsAre(HasSubstr(test.notice))) << test.value;
  }
}

TEST(DevicePoolTest, WarnsOfIndicesWhereTheOrderIsNotSaid) {
  Inventory mixed = GpuMachine(2);
  mixed.gpus[1].name = "Tesla T4";
  EXPECT_THAT(MakePool(mixed, {{"CUDA_VISIBLE_DEVICES", "0"}}).notices, ElementsAre(HasSubstr("PCI_BUS_ID")));
  EXPECT_THAT(MakePool(mixed, {{"CUDA_VISIBLE_DEVICES", "GPU-a"}}).notices, IsEmpty());
  EXPECT_THAT(MakePool(GpuMachine(2), {{"CUDA_VISIBLE_DEVICES", "0"}}).notices, IsEmpty());
}

TEST(DevicePoolTest, HandsOutTheSlicesOfAGpuInMigMode) {
  EXPECT_THAT(Ids(MakePool(MigMachine(2), {}).devices), ElementsAre(SliceUuid(0), SliceUuid(1), Uuid(1)));
  EXPECT_THAT(Ids(Pool(MigMachine(2), "MIG-b").devices), ElementsAre(SliceUuid(1)));
  EXPECT_THAT(Ids(Pool(MigMachine(2), "0").devices), ElementsAre(SliceUuid(0), SliceUuid(1)));
  EXPECT_THAT(Pool(MigMachine(0), "0").notices, ElementsAre(HasSubstr("is in MIG mode and has no slices")));
}

TEST(DevicePoolTest, ListsIndicesWhereNoUuidIsKnown) {
  Inventory inventory = GpuMachine(2);
  inventory.gpus[1].uuid.clear();
  const DevicePool pool = MakePool(inventory, {});
  EXPECT_THAT(Ids(pool.devices), ElementsAre(Uuid(0), "1"));
  EXPECT_EQ(pool.devices[1].name(), "GPU:1");
}

TEST(ChooseVisibleTest, CountsWithinThePool) {
  const DevicePool pool = Pool(GpuMachine(4), "3,2");
  EXPECT_THAT(Choose(pool, {"0"}).ids, ElementsAre(Uuid(3)));
  EXPECT_THAT(Choose(pool, {"1", "0"}).ids, ElementsAre(Uuid(2), Uuid(3)));
  EXPECT_THAT(Choose(pool, {Uuid(2)}).ids, ElementsAre(Uuid(2)));
  EXPECT_THAT(Choose(pool, {}).ids, ElementsAre(Uuid(3), Uuid(2)));
}

TEST(ChooseVisibleTest, NamesAnUnknownDeviceAndThoseThereAre) {
  const DevicePool pool = Pool(GpuMachine(4), "3,2");
  EXPECT_EQ(Choose(pool, {"2"}).error, "spec.devices.visible: there is no device \"2\"; there is GPU 3 (" +
                                           Uuid(3) + "), GPU 2 (" + Uuid(2) + ")");
  EXPECT_THAT(Choose(pool, {Uuid(0)}).error, HasSubstr("there is no device \"" + Uuid(0)));
  EXPECT_THAT(Choose(pool, {"-1"}).error, HasSubstr("there is no device \"-1\""));
  EXPECT_THAT(Choose(pool, {"GPU-"}).error, HasSubstr("write more of the UUID"));
  EXPECT_THAT(Choose(pool, {"0", Uuid(3)}).error, HasSubstr("is named twice"));
  EXPECT_THAT(Choose({}, {"0"}).error, HasSubstr("there is no GPU"));
}

TEST(ChooseVisibleTest, LeavesOutWhatIsMissingWhenSoft) {
  const Choice choice = Choose(MakePool(GpuMachine(2), {}), {"5", "1"}, true);
  EXPECT_THAT(choice.ids, ElementsAre(Uuid(1)));
  EXPECT_THAT(choice.notices, HasSubstr("no device \"5\""));
}

TEST(ChooseVisibleTest, KeepsIndicesInPlaceNextToALostGpu) {
  Inventory inventory = GpuMachine(3);
  inventory.gpus[1].error = "GPU is lost";
  const DevicePool pool = MakePool(inventory, {});
  EXPECT_THAT(Choose(pool, {"2"}).ids, ElementsAre(Uuid(2)));
  EXPECT_THAT(Choose(pool, {"1"}).error, HasSubstr("which cannot be used (GPU is lost)"));
  const Choice all = Choose(pool, {});
  EXPECT_THAT(all.ids, ElementsAre(Uuid(0), Uuid(2)));
  EXPECT_THAT(all.notices, HasSubstr("is left out: GPU is lost"));
}

}  // namespace
}  // namespace lockstep::placement
