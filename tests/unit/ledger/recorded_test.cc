#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/ledger/claim.h"
#include "launcher/placement/discover.h"
#include "tests/paths.h"
#include "tests/unit/placement/builders.h"

// Placement, memory policy and ledger together, on machines as their NVML answered (tests/testdata/nvml).
namespace lockstep::ledger {
namespace {

using placement::testing::Joined;
using placement::testing::kGiB;
using placement::testing::ProgramJob;
using placement::testing::TrainerJob;
using spec::MemoryPolicy;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

placement::Inventory Recorded(const std::string& table) {
  return placement::Discover(
      {.nvml_library = LOCKSTEP_BIN_DIR "/../tests/unit/placement/" + table + "/libnvidia-ml.so.1"});
}

// What a job with these devices gets there.
struct Outcome {
  Status status;
  placement::DeviceAssignment assignment;
  std::vector<Use> uses;
};

Outcome On(const std::string& table, const spec::Devices& devices, spec::TrainingJob job = TrainerJob()) {
  job.roles[0].devices = devices;
  const placement::Inventory inventory = Recorded(table);
  auto assignment = placement::AssignDevices(job, {.inventory = inventory, .cuda_plugin = "/lib/cuda.so"});
  if (!assignment.ok()) return {assignment.status(), {}, {}};
  return {{}, *assignment, UsesOf(*assignment, inventory)};
}

spec::Devices Gpus() {
  spec::Devices devices;
  devices.type = spec::DeviceType::kGpu;
  return devices;
}

spec::Devices Fraction(double fraction) {
  spec::Devices devices = Gpus();
  devices.memory = {.policy = MemoryPolicy::kFraction, .limit = std::nullopt, .fraction = fraction};
  return devices;
}

spec::Devices Limit(int64_t bytes) {
  spec::Devices devices = Gpus();
  devices.memory = {.policy = MemoryPolicy::kLimit, .limit = bytes, .fraction = std::nullopt};
  return devices;
}

spec::Devices Virtual(int per_device, std::optional<int64_t> limit) {
  spec::Devices devices = Gpus();
  devices.virtual_devices = {.per_device = per_device, .memory_limit = limit};
  return devices;
}

TEST(RecordedMachinesTest, EightH100) {
  const Outcome growth = On("eight_h100", Gpus());
  EXPECT_EQ(growth.assignment.processes.size(), 8u);
  EXPECT_FALSE(growth.assignment.shared_gpus);
  ASSERT_EQ(growth.uses.size(), 8u);
  EXPECT_EQ(growth.uses[7].bytes, 0);

  const Outcome half = On("eight_h100", Fraction(0.5));
  EXPECT_EQ(half.uses[3].bytes, 85520809984 / 2);
  EXPECT_EQ(half.uses[3].total_bytes, 85520809984);

  spec::Devices reversed = Gpus();
  reversed.visible = {"3", "2"};
  const Outcome two = On("eight_h100", reversed);
  ASSERT_EQ(two.assignment.processes.size(), 2u);
  EXPECT_THAT(two.assignment.processes[0].devices, ElementsAre("GPU-33333333-4e2c-5a1b-9d3f-0123456789ab"));
  EXPECT_EQ(two.assignment.physical_devices, 8);
  EXPECT_EQ(two.assignment.logical_devices, 2);

  const Outcome shared = On("eight_h100", Virtual(4, std::nullopt));
  EXPECT_EQ(shared.assignment.processes.size(), 32u);
  EXPECT_EQ(shared.uses[0].bytes, 85520809984 / 4 * 4);
  EXPECT_EQ(shared.uses[0].policy, "Limit");
}

TEST(RecordedMachinesTest, MigOnA100) {
  const Outcome half = On("a100_mig", Fraction(0.5));
  ASSERT_EQ(half.assignment.processes.size(), 4u);  // three slices and a whole one
  EXPECT_EQ(half.uses.size(), 4u);
  EXPECT_TRUE(half.assignment.shared_gpus);
  EXPECT_TRUE(half.assignment.processes[0].shared);
  EXPECT_FALSE(half.assignment.processes[3].shared);
  EXPECT_EQ(half.uses[1].device, "MIG-0a0b0c0d-1111-5222-8333-444455550666");
  EXPECT_EQ(half.uses[1].bytes, 20937965568 / 2);

  const Outcome refused = On("a100_mig", Limit(6 * kGiB));
  EXPECT_THAT(refused.status.message(), HasSubstr("6 GiB is too much of GPU 0 (MIG-6a6b6c6d"));
  spec::Devices slice = Limit(4 * kGiB);
  slice.visible = {"MIG-6a"};
  EXPECT_EQ(On("a100_mig", slice).uses[0].bytes, 4 * kGiB);
}

TEST(RecordedMachinesTest, OneT4) {
  const Outcome four = On("one_t4", Virtual(4, kGiB));
  EXPECT_EQ(four.assignment.processes.size(), 4u);
  ASSERT_EQ(four.uses.size(), 1u);
  EXPECT_EQ(four.uses[0].bytes, 4 * kGiB);
  EXPECT_EQ(four.uses[0].processes, 4);
  EXPECT_THAT(On("one_t4", Virtual(4, 5 * kGiB)).status.message(), HasSubstr("at most 3.75 GiB"));
  spec::Devices preallocate = Gpus();
  preallocate.memory.policy = MemoryPolicy::kPreallocate;
  EXPECT_EQ(On("one_t4", preallocate).uses[0].bytes, 15 * kGiB);
}

TEST(RecordedMachinesTest, ALostGpu) {
  const Outcome rest = On("lost_gpu", Gpus());
  EXPECT_EQ(rest.assignment.processes.size(), 2u);
  EXPECT_EQ(rest.assignment.physical_devices, 2);
  EXPECT_THAT(Joined(rest.assignment.notices), HasSubstr("is left out: open: GPU is lost"));
  spec::Devices lost = Gpus();
  lost.visible = {"1"};
  EXPECT_EQ(On("lost_gpu", lost).status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(On("lost_gpu", lost).status.message(), HasSubstr("cannot be used (open: GPU is lost)"));
}

TEST(RecordedMachinesTest, NoDriver) {
  EXPECT_THAT(On("no_driver", Gpus()).status.message(),
              HasSubstr("this machine has no GPU; no NVIDIA driver (nvmlInit: Driver Not Loaded)"));
  EXPECT_EQ(On("no_driver", {}).assignment.type, spec::DeviceType::kCpu);
}

TEST(RecordedMachinesTest, AGpuThatSharesTheHostsMemory) {
  const Outcome half = On("unified_gb10", Fraction(0.5));
  ASSERT_EQ(half.uses.size(), 1u);
  EXPECT_EQ(half.uses[0].bytes, 0);
  EXPECT_DOUBLE_EQ(half.uses[0].share, 0.5);
}

// A GPU that failed while the job ran is as if it were not there, with the processes' number left free.
TEST(RecordedMachinesTest, LeavesOutWhatFailedMeanwhile) {
  const placement::Inventory inventory = Recorded("eight_h100");
  const auto without = [&](std::map<int, std::string> left_out, const spec::TrainingJob& job) {
    return placement::AssignDevices(job, {.inventory = inventory,
                                          .inherited = {{"CUDA_VISIBLE_DEVICES", "0,1,2,3"}},
                                          .cuda_plugin = "/lib/cuda.so",
                                          .left_out = std::move(left_out)});
  };
  const auto three = without({{1, "Xid 79"}}, ProgramJob(spec::Framework::kNone));
  ASSERT_TRUE(three.ok());
  EXPECT_EQ(three->processes.size(), 3u);
  EXPECT_EQ(three->physical_devices, 3);
  EXPECT_THAT(three->processes[1].devices, ElementsAre("GPU-22222222-4e2c-5a1b-9d3f-0123456789ab"));
  EXPECT_THAT(Joined(three->notices), HasSubstr("is left out: Xid 79"));
  // The trainer's batch of 256 does not come out even over three.
  EXPECT_EQ(without({{1, "Xid 79"}}, TrainerJob())->processes.size(), 2u);
  spec::TrainingJob four = TrainerJob();
  four.roles[0].processes_per_replica = 4;
  EXPECT_THAT(without({{1, "Xid 79"}}, four).status().message(),
              HasSubstr("spec.processesPerReplica: 4 processes"));
}

}  // namespace
}  // namespace lockstep::ledger
