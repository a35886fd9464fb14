#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/placement/assign.h"
#include "tests/unit/placement/builders.h"

namespace lockstep::placement {
namespace {

using spec::DeviceType;
using spec::Framework;
using ::testing::ElementsAre;
using testing::GpuMachine;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Joined;
using testing::Machine;
using testing::ProgramJob;
using testing::TrainerJob;

size_t Processes(const spec::TrainingJob& job, const Inventory& inventory) {
  const auto assignment = AssignDevices(job, {.inventory = inventory});
  EXPECT_TRUE(assignment.ok()) << assignment.status().message();
  return assignment.ok() ? assignment->processes.size() : 0;
}

TEST(AssignCpuTest, StartsOneProcessACore) {
  EXPECT_EQ(Processes(TrainerJob(), Machine(1, 4)), 4u);
  EXPECT_EQ(Processes(TrainerJob(), Machine(1, 2, 2)), 2u);
  EXPECT_EQ(Processes(ProgramJob(Framework::kNone), Machine(1, 2)), 2u);
  Inventory quota = Machine(1, 4);
  quota.cpu_quota = 2.9;
  EXPECT_EQ(Processes(TrainerJob(), quota), 2u);
}

TEST(AssignCpuTest, StartsOneProcessForTensorFlowAndForOneDevice) {
  EXPECT_EQ(Processes(ProgramJob(Framework::kTensorFlow), Machine(1, 4)), 1u);
  spec::TrainingJob job = TrainerJob();
  job.strategy.type = spec::StrategyType::kOneDevice;
  EXPECT_EQ(Processes(job, Machine(1, 4)), 1u);
}

TEST(AssignCpuTest, TakesVirtualDevicesAsSharesOfTheCpu) {
  spec::TrainingJob job = TrainerJob();
  job.roles[0].devices.type = DeviceType::kCpu;
  job.roles[0].devices.virtual_devices = {.per_device = 4, .memory_limit = std::nullopt};
  const auto assignment = AssignDevices(job, {.inventory = Machine(1, 2)});
  ASSERT_TRUE(assignment.ok());
  ASSERT_EQ(assignment->processes.size(), 4u);
  EXPECT_THAT(assignment->processes[3].devices, ElementsAre("CPU:3"));
  EXPECT_THAT(assignment->processes[3].visible, IsEmpty());
  EXPECT_EQ(assignment->physical_devices, 1);
  EXPECT_EQ(assignment->logical_devices, 4);
}

TEST(AssignCpuTest, DividesNoCpuInPlaceOfAGpuUnlessSoft) {
  spec::TrainingJob job = TrainerJob();
  job.roles[0].devices.virtual_devices = {.per_device = 4, .memory_limit = testing::kGiB};
  const auto refused = AssignDevices(job, {.inventory = Machine(1, 2)});
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("spec.devices.virtual: there is no GPU to divide"));
  job.roles[0].devices.soft_placement = true;
  const auto soft = AssignDevices(job, {.inventory = Machine(1, 2)});
  ASSERT_TRUE(soft.ok());
  EXPECT_EQ(soft->processes.size(), 4u);
  EXPECT_EQ(soft->processes[0].memory.limit, std::nullopt);
  EXPECT_THAT(soft->notices, ElementsAre(HasSubstr("memoryLimit is not held there (softPlacement)")));
}

TEST(AssignCpuTest, RefusesNcclWithoutGpusUnlessSoft) {
  spec::TrainingJob job = TrainerJob();
  job.strategy.cross_device_ops = spec::CrossDeviceOps::kNccl;
  const auto refused = AssignDevices(job, {.inventory = Machine(1, 2)});
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("spec.strategy.crossDeviceOps: NCCL sums on GPUs"));
  job.roles[0].devices.soft_placement = true;
  const auto soft = AssignDevices(job, {.inventory = Machine(1, 2)});
  ASSERT_TRUE(soft.ok());
  EXPECT_THAT(soft->notices, ElementsAre(HasSubstr("it is Auto (softPlacement)")));
  EXPECT_EQ(Resolved(job, *soft).strategy.cross_device_ops, spec::CrossDeviceOps::kAuto);
  const auto gpus = AssignDevices(job, {.inventory = GpuMachine(2), .cuda_plugin = "/lib/cuda.so"});
  ASSERT_TRUE(gpus.ok());
  EXPECT_EQ(Resolved(job, *gpus).strategy.cross_device_ops, spec::CrossDeviceOps::kNccl);
}

TEST(AssignCpuTest, StartsNoMoreThanTheTrainersBatchComesOutEvenOver) {
  const auto assignment = AssignDevices(TrainerJob(256), {.inventory = Machine(1, 6)});
  ASSERT_TRUE(assignment.ok());
  EXPECT_EQ(assignment->processes.size(), 4u);
  EXPECT_THAT(assignment->notices, ElementsAre(HasSubstr("4 processes on 6 cores")));
  spec::TrainingJob two = TrainerJob(12);
  two.roles[0].replicas = 2;
  EXPECT_EQ(Processes(two, Machine(1, 4)), 3u);
  // What was asked for stays; the validator speaks of the batch.
  two.roles[0].processes_per_replica = 5;
  EXPECT_EQ(Processes(two, Machine(1, 4)), 5u);
}

TEST(AssignCpuTest, MayOversubscribeAndSharesTheThreads) {
  const struct {
    int cores;
    int processes;
    int threads;
  } kCases[] = {{8, 2, 4}, {2, 4, 1}, {5, 2, 2}, {1, 8, 1}, {8, 1, 8}};
  for (const auto& test : kCases) {
    spec::TrainingJob job = TrainerJob();
    job.roles[0].processes_per_replica = test.processes;
    const auto assignment = AssignDevices(job, {.inventory = Machine(1, test.cores)});
    ASSERT_TRUE(assignment.ok());
    EXPECT_EQ(assignment->processes.size(), static_cast<size_t>(test.processes));
    EXPECT_EQ(assignment->processes.back().threads, test.threads) << test.cores << "/" << test.processes;
  }
}

TEST(AssignCpuTest, NeverGivesMoreThreadsThanBoundCores) {
  spec::TrainingJob job = TrainerJob();
  job.roles[0].processes_per_replica = 3;  // on two nodes of four cores: 2 + 2 and 4 cores
  const auto assignment = AssignDevices(job, {.inventory = Machine(2, 4)});
  ASSERT_TRUE(assignment.ok());
  EXPECT_THAT(assignment->processes[0].cpus, ElementsAre(0, 1));
  EXPECT_EQ(assignment->processes[0].numa_node, 0);
  for (const ProcessDevices& process : assignment->processes) EXPECT_EQ(process.threads, 2);
}

TEST(AssignCpuTest, RunsTheTrainerOnTheCpuAndSaysWhy) {
  const auto assignment = AssignDevices(TrainerJob(), {.inventory = GpuMachine(2)});
  ASSERT_TRUE(assignment.ok());
  EXPECT_EQ(assignment->type, DeviceType::kCpu);
  EXPECT_EQ(assignment->processes.size(), 8u);
  EXPECT_THAT(assignment->notices, ElementsAre(HasSubstr("Auto is the CPU here: Lockstep's trainer computes "
                                                         "on GPUs with liblockstep-cuda.so, which is not")));
  Inventory none = Machine(1, 2);
  none.notes = {"no NVIDIA driver (libnvidia-ml.so.1 not found)"};
  EXPECT_THAT(
      AssignDevices(TrainerJob(), {.inventory = none, .cuda_plugin = "/lib/cuda.so"})->notices,
      ElementsAre("spec.devices.type: Auto is the CPU here: this machine has no GPU; no NVIDIA driver "
                  "(libnvidia-ml.so.1 not found)"));
}

TEST(AssignCpuTest, RefusesTheTrainerOnAGpuWithoutItsPluginUnlessSoft) {
  spec::TrainingJob job = TrainerJob();
  job.roles[0].devices.type = DeviceType::kGpu;
  const auto refused = AssignDevices(job, {.inventory = GpuMachine(2)});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("spec.devices.type: GPU is asked for, and"));
  EXPECT_THAT(refused.status().message(), HasSubstr("liblockstep-cuda.so, which is not installed"));
  job.roles[0].devices.soft_placement = true;
  const auto soft = AssignDevices(job, {.inventory = GpuMachine(2)});
  ASSERT_TRUE(soft.ok());
  EXPECT_EQ(soft->type, DeviceType::kCpu);
  EXPECT_THAT(Joined(soft->notices), HasSubstr("the CPU is used (softPlacement)"));
}

TEST(AssignCpuTest, RefusesAProgramOnAGpuWhereThereIsNoneUnlessSoft) {
  spec::TrainingJob job = ProgramJob(Framework::kPyTorch);
  job.roles[0].devices.type = DeviceType::kGpu;
  Inventory inventory = Machine(1, 2);
  inventory.notes = {"no NVIDIA driver (libnvidia-ml.so.1 not found)"};
  const auto refused = AssignDevices(job, {.inventory = inventory});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("this machine has no GPU; no NVIDIA driver"));
  job.roles[0].devices.soft_placement = true;
  const auto soft = AssignDevices(job, {.inventory = inventory});
  ASSERT_TRUE(soft.ok());
  EXPECT_EQ(soft->type, DeviceType::kCpu);
  EXPECT_THAT(Joined(soft->notices), HasSubstr("the CPU is used (softPlacement)"));
}

TEST(AssignCpuTest, RunsAProgramOnTheCpuWithoutAWordWhenTheTypeIsAuto) {
  const auto assignment = AssignDevices(ProgramJob(Framework::kJax), {.inventory = Machine(1, 2)});
  ASSERT_TRUE(assignment.ok());
  EXPECT_THAT(assignment->notices, IsEmpty());
}

// The example of the manifest's documentation on a machine without a GPU.
TEST(AssignCpuTest, FallsBackFromANamedDeviceWhenSoft) {
  spec::TrainingJob job = TrainerJob();
  job.roles[0].devices.visible = {"0"};
  job.roles[0].devices.virtual_devices = {.per_device = 4, .memory_limit = std::nullopt};
  const auto refused = AssignDevices(job, {.inventory = Machine(1, 2)});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("no device \"0\"; there is no GPU"));
  job.roles[0].devices.soft_placement = true;
  EXPECT_EQ(Processes(job, Machine(1, 2)), 4u);
}

spec::TrainingJob TpuJob(Framework framework) {
  spec::TrainingJob job = ProgramJob(framework);
  job.roles[0].replicas = 2;
  job.roles[0].devices.type = DeviceType::kTpu;
  job.roles[0].devices.accelerator = "tpu-v5-lite-podslice";
  job.roles[0].devices.topology = "2x4";
  return job;
}

TEST(AssignCpuTest, TpusAreNoMachinesOwn) {
  const auto refused = AssignDevices(TpuJob(Framework::kJax), {.inventory = Machine(1, 2)});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(),
              HasSubstr("spec.devices.type: TPUs are used in a cluster's pods only"));
}

TEST(AssignCpuTest, OneProcessOfAPodHasItsTpus) {
  const spec::TrainingJob job = TpuJob(Framework::kJax);
  const auto assignment = AssignDevices(job, {.inventory = Machine(1, 8), .tpus = true});
  ASSERT_TRUE(assignment.ok()) << assignment.status().ToString();
  ASSERT_EQ(assignment->processes.size(), 1u);
  EXPECT_THAT(assignment->processes[0].devices, ElementsAre("TPU:0", "TPU:1", "TPU:2", "TPU:3"));
  EXPECT_EQ(assignment->processes[0].threads, 8);
  GenerationFacts facts = testing::Facts();
  facts.replicas = {{.address = "a-0.a"}, {.index = 1, .address = "a-1.a"}};
  facts.self = 1;
  const auto plan = MakeEnvironment(job, {*assignment}, facts);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const auto value = [&](const std::string& name) {
    for (const auto& [key, text] : plan->processes[0].environment) {
      if (key == name) return text;
    }
    return std::string("<absent>");
  };
  EXPECT_EQ(value("TPU_WORKER_ID"), "1");
  EXPECT_EQ(value("TPU_WORKER_HOSTNAMES"), "a-0.a,a-1.a");
  EXPECT_EQ(value("PJRT_DEVICE"), "TPU");
  EXPECT_EQ(value("JAX_PLATFORMS"), "tpu");
  EXPECT_EQ(value("LOCKSTEP_DEVICE"), "TPU");
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), "");
}

TEST(AssignCpuTest, NamesTheRolesThereAre) {
  const auto refused = AssignDevices(TrainerJob(), {.role = "chief"});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("no role \"chief\"; there is worker"));
}

TEST(NeedsGpusTest, AsksTheDriverOnlyWhereAGpuCouldBeUsed) {
  spec::TrainingJob job = ProgramJob(Framework::kNone);
  EXPECT_TRUE(NeedsGpus(job, "worker"));
  job.roles[0].devices.type = DeviceType::kCpu;
  EXPECT_FALSE(NeedsGpus(job, "worker"));
}

}  // namespace
}  // namespace lockstep::placement
