#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/placement/assign.h"
#include "tests/unit/placement/builders.h"

namespace lockstep::placement {
namespace {

using spec::DeviceType;
using spec::Framework;
using spec::Visibility;
using ::testing::ElementsAre;
using testing::GpuMachine;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Joined;
using testing::kGiB;
using testing::MigMachine;
using testing::ProgramJob;
using testing::SliceUuid;
using testing::Uuid;

DeviceAssignment MustAssign(const spec::TrainingJob& job, const Inventory& inventory,
                            const Environment& inherited = {}) {
  auto assignment = AssignDevices(job, {.inventory = inventory, .inherited = inherited});
  EXPECT_TRUE(assignment.ok()) << assignment.status().message();
  return assignment.ok() ? *assignment : DeviceAssignment{};
}

// Each process's own devices as their first letters; "|" between processes: "ab|cd".
std::string Own(const DeviceAssignment& assignment) {
  std::string text;
  for (const ProcessDevices& process : assignment.processes) {
    if (process.local_rank > 0) text += "|";
    for (const std::string& device : process.devices) text += device[4];
  }
  return text;
}

std::string Visible(const DeviceAssignment& assignment) {
  std::string text;
  for (const ProcessDevices& process : assignment.processes) {
    if (process.local_rank > 0) text += "|";
    for (const std::string& device : process.visible) text += device[4];
  }
  return text;
}

TEST(AssignGpuTest, ShowsEachFrameworkWhatItsScriptsExpect) {
  const struct {
    Framework framework;
    const char* own;
    const char* visible;
  } kCases[] = {
      {Framework::kNone, "a|b|c|d", "a|b|c|d"},
      {Framework::kJax, "a|b|c|d", "a|b|c|d"},
      {Framework::kPyTorch, "a|b|c|d", "abcd|abcd|abcd|abcd"},
      {Framework::kHorovod, "a|b|c|d", "abcd|abcd|abcd|abcd"},
      {Framework::kMpi, "a|b|c|d", "abcd|abcd|abcd|abcd"},
      {Framework::kTensorFlow, "abcd", "abcd"},
  };
  for (const auto& test : kCases) {
    const DeviceAssignment assignment = MustAssign(ProgramJob(test.framework), GpuMachine(4));
    EXPECT_EQ(assignment.type, DeviceType::kGpu);
    EXPECT_EQ(Own(assignment), test.own) << static_cast<int>(test.framework);
    EXPECT_EQ(Visible(assignment), test.visible) << static_cast<int>(test.framework);
    EXPECT_FALSE(assignment.shared_gpus);
  }
}

TEST(AssignGpuTest, LetsTheManifestChooseVisibility) {
  spec::TrainingJob job = ProgramJob(Framework::kPyTorch);
  job.roles[0].devices.visibility = Visibility::kPerProcess;
  EXPECT_EQ(Visible(MustAssign(job, GpuMachine(2))), "a|b");
  job.program->framework = Framework::kJax;
  job.roles[0].devices.visibility = Visibility::kPerReplica;
  EXPECT_EQ(Visible(MustAssign(job, GpuMachine(2))), "ab|ab");
}

TEST(AssignGpuTest, GivesFewerProcessesEqualShares) {
  spec::TrainingJob job = ProgramJob(Framework::kNone);
  job.roles[0].processes_per_replica = 2;
  EXPECT_EQ(Own(MustAssign(job, GpuMachine(4))), "ab|cd");
  job.roles[0].processes_per_replica = 1;
  EXPECT_EQ(Own(MustAssign(job, GpuMachine(4))), "abcd");
  job.roles[0].processes_per_replica = 3;
  const DeviceAssignment uneven = MustAssign(job, GpuMachine(4));
  EXPECT_EQ(Own(uneven), "a|b|c");
  EXPECT_THAT(uneven.notices, ElementsAre(HasSubstr("1 of 4 devices stay idle")));
}

TEST(AssignGpuTest, KeepsEachTensorFlowProcessToItsOwnWhenThereAreSeveral) {
  spec::TrainingJob job = ProgramJob(Framework::kTensorFlow);
  job.roles[0].processes_per_replica = 2;
  EXPECT_EQ(Visible(MustAssign(job, GpuMachine(4))), "ab|cd");
}

TEST(AssignGpuTest, SharesGpusByVirtualDevices) {
  spec::TrainingJob job = ProgramJob(Framework::kPyTorch);
  job.roles[0].devices.virtual_devices = {.per_device = 2, .memory_limit = 40 * kGiB};
  const DeviceAssignment assignment = MustAssign(job, GpuMachine(2));
  EXPECT_EQ(Own(assignment), "a|a|b|b");
  EXPECT_EQ(Visible(assignment), "a|a|b|b");
  EXPECT_TRUE(assignment.shared_gpus);
  EXPECT_EQ(assignment.physical_devices, 2);
  EXPECT_EQ(assignment.logical_devices, 4);
  EXPECT_EQ(assignment.processes[0].memory.limit, 40 * kGiB);
  EXPECT_DOUBLE_EQ(*assignment.processes[0].memory.fraction, 0.5);
  EXPECT_THAT(assignment.notices, ElementsAre(HasSubstr("share a GPU without MPS")));
  job.roles[0].processes_per_replica = 3;
  EXPECT_EQ(Own(MustAssign(job, GpuMachine(2))), "a|a|b");
}

TEST(AssignGpuTest, SaysWhatWouldBeRightForTooManyProcesses) {
  spec::TrainingJob job = ProgramJob(Framework::kPyTorch);
  job.roles[0].processes_per_replica = 5;
  const auto refused = AssignDevices(job, {.inventory = GpuMachine(2)});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("spec.processesPerReplica: 5 processes for GPU 0"));
  EXPECT_THAT(refused.status().message(), HasSubstr("at most 2, or set devices.virtual.perDevice to 3"));
  job.roles[0].devices.virtual_devices = {.per_device = 2, .memory_limit = std::nullopt};
  EXPECT_THAT(AssignDevices(job, {.inventory = GpuMachine(2)}).status().message(),
              HasSubstr("5 processes for 4 virtual devices on GPU 0"));
}

TEST(AssignGpuTest, GivesASliceToEachProcessWhateverTheFramework) {
  for (const Framework framework : {Framework::kTensorFlow, Framework::kPyTorch, Framework::kJax}) {
    spec::TrainingJob job = ProgramJob(framework);
    job.roles[0].devices.visible = {SliceUuid(1), SliceUuid(0)};
    job.roles[0].processes_per_replica = 2;
    const DeviceAssignment assignment = MustAssign(job, MigMachine(2));
    EXPECT_EQ(Visible(assignment), "b|a");
    EXPECT_TRUE(assignment.shared_gpus);  // as NCCL sees it
    EXPECT_THAT(assignment.notices, IsEmpty());
    EXPECT_EQ(assignment.processes[0].memory.limit, std::nullopt);
  }
}

TEST(AssignGpuTest, OverrulesPerReplicaForSlicesAndSaysSo) {
  spec::TrainingJob job = ProgramJob(Framework::kPyTorch);
  job.roles[0].devices.visibility = Visibility::kPerReplica;
  const DeviceAssignment assignment = MustAssign(job, MigMachine(2));
  EXPECT_EQ(assignment.processes.size(), 3u);
  EXPECT_EQ(assignment.visibility, Visibility::kPerProcess);
  EXPECT_THAT(Joined(assignment.notices), HasSubstr("one MIG slice only"));
}

TEST(AssignGpuTest, NeverGivesAProcessTwoSlices) {
  spec::TrainingJob job = ProgramJob(Framework::kNone);
  job.roles[0].processes_per_replica = 1;
  job.roles[0].devices.visible = {"0", "1"};
  const DeviceAssignment assignment = MustAssign(job, MigMachine(2));
  EXPECT_EQ(Own(assignment), "a");
  EXPECT_THAT(Joined(assignment.notices), HasSubstr("1 of 2 devices stay idle"));
}

// Two programs side by side, as in NVIDIA's guide: on 0,1 and on 3,2.
TEST(AssignGpuTest, RunsTwoProgramsOnTheirOwnPools) {
  EXPECT_EQ(
      Visible(MustAssign(ProgramJob(Framework::kNone), GpuMachine(4), {{"CUDA_VISIBLE_DEVICES", "0,1"}})),
      "a|b");
  spec::TrainingJob job = ProgramJob(Framework::kNone);
  job.roles[0].devices.visible = {"1"};
  const DeviceAssignment second = MustAssign(job, GpuMachine(4), {{"CUDA_VISIBLE_DEVICES", "3,2"}});
  EXPECT_EQ(Visible(second), "c");
  EXPECT_EQ(second.physical_devices, 2);
  EXPECT_EQ(second.logical_devices, 1);
}

Result<DeviceAssignment> Trained(const spec::TrainingJob& job, const Inventory& inventory) {
  return AssignDevices(job, {.inventory = inventory, .cuda_plugin = "/opt/lib/liblockstep-cuda.so"});
}

TEST(AssignTrainerTest, GivesEachProcessOneGpu) {
  const auto all = Trained(testing::TrainerJob(), GpuMachine(4));
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all->type, DeviceType::kGpu);
  EXPECT_EQ(Own(*all), "a|b|c|d");
  EXPECT_EQ(Visible(*all), "a|b|c|d");
  EXPECT_THAT(all->notices, IsEmpty());
  spec::TrainingJob two = testing::TrainerJob();
  two.roles[0].processes_per_replica = 2;
  EXPECT_EQ(Own(*Trained(two, GpuMachine(4))), "a|b");
  spec::TrainingJob one = testing::TrainerJob();
  one.strategy.type = spec::StrategyType::kOneDevice;
  EXPECT_EQ(Visible(*Trained(one, GpuMachine(4))), "a");
}

TEST(AssignTrainerTest, StartsNoMoreThanTheBatchComesOutEvenOver) {
  const auto three = Trained(testing::TrainerJob(256), GpuMachine(3));
  ASSERT_TRUE(three.ok());
  EXPECT_EQ(Own(*three), "a|b");
  EXPECT_THAT(three->notices,
              ElementsAre(HasSubstr("2 processes for 3 devices: over more, spec.trainer.batchSize 256"),
                          HasSubstr("1 of 3 devices stay idle: there are 2 processes")));
}

TEST(AssignTrainerTest, ShowsAllGpusToAProcessThatPutsItsLayersOnSeveral) {
  spec::TrainingJob job = testing::TrainerJob();
  job.strategy.type = spec::StrategyType::kOneDevice;
  job.strategy.variables = spec::VariablePlacement::kLeastLoaded;
  EXPECT_EQ(Visible(*Trained(job, GpuMachine(3))), "abc");
  EXPECT_EQ(Own(*Trained(job, GpuMachine(3))), "abc");
  job.strategy.variables = spec::VariablePlacement::kAuto;
  job.layer_placement = {{.match = "dense", .device = "GPU:1"}};
  EXPECT_EQ(Visible(*Trained(job, GpuMachine(3))), "abc");
}

// The guides' four virtual GPUs of 1 GiB.
TEST(AssignTrainerTest, DividesAGpuAsTheGuidesDo) {
  spec::TrainingJob job = testing::TrainerJob();
  job.roles[0].devices.virtual_devices = {.per_device = 4, .memory_limit = kGiB};
  const auto assignment = Trained(job, GpuMachine(1));
  ASSERT_TRUE(assignment.ok());
  EXPECT_EQ(Own(*assignment), "a|a|a|a");
  for (const ProcessDevices& process : assignment->processes) {
    EXPECT_EQ(process.memory.policy, spec::MemoryPolicy::kLimit);
    EXPECT_EQ(process.memory.limit, kGiB);
    EXPECT_TRUE(process.shared);
  }
}

TEST(AssignGpuTest, MakesAVirtualDeviceAnEqualPartWhereNothingElseIsSaid) {
  spec::TrainingJob job = ProgramJob(Framework::kJax);
  job.roles[0].devices.virtual_devices = {.per_device = 4, .memory_limit = std::nullopt};
  EXPECT_EQ(MustAssign(job, GpuMachine(1)).processes[0].memory.limit, 20 * kGiB);
  EXPECT_EQ(MustAssign(job, GpuMachine(1)).processes[0].memory.policy, spec::MemoryPolicy::kLimit);
  job.roles[0].devices.memory.policy = spec::MemoryPolicy::kPreallocate;
  EXPECT_EQ(MustAssign(job, GpuMachine(1)).processes[0].memory.limit, 20 * kGiB);
  EXPECT_EQ(MustAssign(job, GpuMachine(1)).processes[0].memory.policy, spec::MemoryPolicy::kPreallocate);
  // One process of TensorFlow sees whole GPUs and divides them itself.
  EXPECT_EQ(MustAssign(
                [&] {
                  spec::TrainingJob tensorflow = job;
                  tensorflow.program->framework = Framework::kTensorFlow;
                  return tensorflow;
                }(),
                GpuMachine(1))
                .processes[0]
                .memory.limit,
            std::nullopt);
}

TEST(AssignGpuTest, UsesTheCpuWhereTheInheritedPoolIsEmpty) {
  const DeviceAssignment assignment =
      MustAssign(ProgramJob(Framework::kNone), GpuMachine(2), {{"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_EQ(assignment.type, DeviceType::kCpu);
  EXPECT_THAT(Joined(assignment.notices), HasSubstr("so no GPU is used"));
}

TEST(AssignGpuTest, BindsToTheNodeOfTheGpu) {
  const DeviceAssignment assignment = MustAssign(ProgramJob(Framework::kPyTorch), GpuMachine(4));
  EXPECT_THAT(assignment.processes[0].cpus, ElementsAre(0, 1));
  EXPECT_EQ(assignment.processes[2].numa_node, 1);
  EXPECT_THAT(assignment.processes[3].cpus, ElementsAre(6, 7));
  EXPECT_EQ(assignment.processes[3].threads, 2);
}

}  // namespace
}  // namespace lockstep::placement
