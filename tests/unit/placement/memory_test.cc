#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "launcher/placement/assign.h"
#include "launcher/placement/memory_share.h"
#include "tests/unit/placement/builders.h"

namespace lockstep::placement {
namespace {

using spec::Framework;
using spec::MemoryPolicy;
using testing::Facts;
using testing::GpuMachine;
using ::testing::HasSubstr;
using testing::Joined;
using testing::kGiB;
using testing::ProgramJob;
using testing::Value;

spec::TrainingJob Job(Framework framework, const spec::DeviceMemory& memory) {
  spec::TrainingJob job = ProgramJob(framework);
  job.roles[0].devices.memory = memory;
  return job;
}

Result<Plan> TryPlan(const spec::TrainingJob& job, const Environment& inherited = {}, bool mps = false,
                     bool new_pytorch = false) {
  GenerationFacts facts = Facts();
  facts.inherited = inherited;
  facts.pytorch_knows_memory_fraction = new_pytorch;
  return Assign(job, {.inventory = GpuMachine(2), .inherited = inherited, .mps_control = mps}, facts);
}

Plan MustPlan(const spec::TrainingJob& job, const Environment& inherited = {}, bool mps = false,
              bool new_pytorch = false) {
  auto plan = TryPlan(job, inherited, mps, new_pytorch);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  if (!plan.ok()) return Plan{.processes = {ProcessPlan{}}};
  return *plan;
}

const spec::DeviceMemory kGrowth = {};
const spec::DeviceMemory kPreallocate = {.policy = MemoryPolicy::kPreallocate};
const spec::DeviceMemory kHalf = {.policy = MemoryPolicy::kFraction, .limit = std::nullopt, .fraction = 0.5};
const spec::DeviceMemory kTenGiB = {
    .policy = MemoryPolicy::kLimit, .limit = 10 * kGiB, .fraction = std::nullopt};

TEST(MemoryVariablesTest, SaysEachPolicyInTheFrameworksWords) {
  const struct {
    Framework framework;
    spec::DeviceMemory memory;
    const char* name;
    const char* value;
  } kCases[] = {
      {Framework::kTensorFlow, kGrowth, "TF_FORCE_GPU_ALLOW_GROWTH", "true"},
      {Framework::kTensorFlow, kPreallocate, "TF_FORCE_GPU_ALLOW_GROWTH", "false"},
      {Framework::kTensorFlow, kHalf, "TF_FORCE_GPU_ALLOW_GROWTH", "true"},
      {Framework::kPyTorch, kGrowth, "PYTORCH_ALLOC_CONF", "expandable_segments:True"},
      {Framework::kPyTorch, kGrowth, "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"},
      {Framework::kPyTorch, kHalf, "PYTORCH_ALLOC_CONF", "expandable_segments:True"},
      {Framework::kJax, kGrowth, "XLA_PYTHON_CLIENT_PREALLOCATE", "false"},
      {Framework::kJax, kGrowth, "XLA_CLIENT_MEM_FRACTION", "<absent>"},
      {Framework::kJax, kPreallocate, "XLA_PYTHON_CLIENT_PREALLOCATE", "true"},
      {Framework::kJax, kHalf, "XLA_CLIENT_MEM_FRACTION", "0.5"},
      {Framework::kJax, kTenGiB, "XLA_CLIENT_MEM_FRACTION", "0.125"},
      {Framework::kNone, kTenGiB, "CUPY_GPU_MEMORY_LIMIT", "10737418240"},
      {Framework::kNone, kGrowth, "CUPY_GPU_MEMORY_LIMIT", "<absent>"},
  };
  for (const auto& test : kCases) {
    const Plan plan = MustPlan(Job(test.framework, test.memory));
    EXPECT_EQ(Value(plan.processes[0].environment, test.name), test.value) << test.name;
  }
}

TEST(MemoryVariablesTest, SaysWhatAFrameworkCannotHonour) {
  EXPECT_THAT(Joined(MustPlan(Job(Framework::kTensorFlow, kHalf)).notices),
              HasSubstr("only through its API"));
  EXPECT_THAT(Joined(MustPlan(Job(Framework::kPyTorch, kTenGiB)).notices), HasSubstr("enforce: MPS holds"));
  EXPECT_THAT(Joined(MustPlan(Job(Framework::kPyTorch, kPreallocate)).notices),
              HasSubstr("has no preallocation"));
  EXPECT_THAT(Joined(MustPlan(Job(Framework::kNone, kHalf)).notices), HasSubstr("only CuPy"));
  EXPECT_EQ(Joined(MustPlan(Job(Framework::kJax, kHalf)).notices), "");
}

// What each framework is told of each policy, and what is said where that is not all of it.
TEST(MemoryVariablesTest, TellsEachFrameworkOfEachPolicyWhatItCan) {
  enum { kTold, kSaid };
  const struct {
    Framework framework;
    int growth, preallocate, limit, fraction;
  } kCases[] = {
      {Framework::kTensorFlow, kTold, kTold, kSaid, kSaid}, {Framework::kPyTorch, kTold, kSaid, kSaid, kSaid},
      {Framework::kJax, kTold, kTold, kTold, kTold},        {Framework::kNone, kTold, kSaid, kSaid, kSaid},
      {Framework::kHorovod, kTold, kSaid, kSaid, kSaid},    {Framework::kMpi, kTold, kSaid, kSaid, kSaid},
  };
  for (const auto& test : kCases) {
    const std::pair<spec::DeviceMemory, int> policies[] = {{kGrowth, test.growth},
                                                           {kPreallocate, test.preallocate},
                                                           {kTenGiB, test.limit},
                                                           {kHalf, test.fraction}};
    for (const auto& [memory, expected] : policies) {
      const Plan plan = MustPlan(Job(test.framework, memory));
      const auto said = std::count_if(
          plan.notices.begin(), plan.notices.end(),
          [](const std::string& notice) { return notice.starts_with("spec.devices.memory: "); });
      // Once, however many processes there are.
      EXPECT_EQ(said, expected) << static_cast<int>(test.framework) << " " << static_cast<int>(memory.policy);
      spec::DeviceMemory enforced = memory;
      if (!memory.limit && !memory.fraction) continue;
      enforced.enforce = spec::MemoryEnforcement::kMps;
      EXPECT_THAT(Joined(MustPlan(Job(test.framework, enforced), {}, true).notices),
                  ::testing::Not(HasSubstr("spec.devices.memory: ")));
    }
  }
}

TEST(MemoryVariablesTest, TellsCuPyBytesWhateverTheLimitIsMadeOf) {
  for (const Framework framework : {Framework::kNone, Framework::kHorovod, Framework::kMpi}) {
    const Plan plan = MustPlan(Job(framework, kHalf));
    EXPECT_EQ(Value(plan.processes[0].environment, "CUPY_GPU_MEMORY_LIMIT"), std::to_string(40 * kGiB));
  }
  spec::TrainingJob divided = Job(Framework::kNone, kGrowth);
  divided.roles[0].devices.virtual_devices = {.per_device = 4, .memory_limit = kGiB};
  EXPECT_EQ(Value(MustPlan(divided).processes[0].environment, "CUPY_GPU_MEMORY_LIMIT"), std::to_string(kGiB));
  const Plan own = MustPlan(Job(Framework::kNone, kHalf), {{"CUPY_GPU_MEMORY_LIMIT", "90%"}});
  EXPECT_EQ(Value(own.processes[0].environment, "CUPY_GPU_MEMORY_LIMIT"), "90%");
}

TEST(MemoryVariablesTest, TellsClientsWhereTheirMpsDaemonIs) {
  spec::DeviceMemory memory = kTenGiB;
  memory.enforce = spec::MemoryEnforcement::kMps;
  GenerationFacts facts = Facts();
  facts.mps_pipe_directory = "/run/mps-1";
  facts.mps_log_directory = "/run/mps-log";
  const auto plan =
      Assign(Job(Framework::kJax, memory), {.inventory = GpuMachine(1), .mps_control = true}, facts);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(Value(plan->processes[0].environment, "CUDA_MPS_PIPE_DIRECTORY"), "/run/mps-1");
  EXPECT_EQ(Value(plan->processes[0].environment, "CUDA_MPS_LOG_DIRECTORY"), "/run/mps-log");
}

TEST(MemoryVariablesTest, UsesTheNewPyTorchSwitchOnlyWhereItIsKnown) {
  const Plan plan = MustPlan(Job(Framework::kPyTorch, kHalf),
                             {{"PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64"}}, false, true);
  EXPECT_EQ(Value(plan.processes[0].environment, "PYTORCH_ALLOC_CONF"),
            "expandable_segments:True,per_process_memory_fraction:0.5");
  EXPECT_EQ(Value(plan.processes[0].environment, "PYTORCH_CUDA_ALLOC_CONF"), "<absent>");
  EXPECT_EQ(Joined(plan.notices), "");
}

TEST(MemoryVariablesTest, LeavesAUsersAllocatorAloneWithoutAPolicy) {
  const Plan plan =
      MustPlan(Job(Framework::kPyTorch, kGrowth), {{"PYTORCH_CUDA_ALLOC_CONF", "backend:native"}});
  EXPECT_EQ(Value(plan.processes[0].environment, "PYTORCH_CUDA_ALLOC_CONF"), "backend:native");
  EXPECT_EQ(Value(plan.processes[0].environment, "PYTORCH_ALLOC_CONF"), "<absent>");
  const Plan jax = MustPlan(Job(Framework::kJax, kGrowth), {{"XLA_PYTHON_CLIENT_PREALLOCATE", "true"}});
  EXPECT_EQ(Value(jax.processes[0].environment, "XLA_PYTHON_CLIENT_PREALLOCATE"), "true");
}

TEST(MemoryVariablesTest, TakesJaxsOldNameAwayNextToTheNewOne) {
  const Environment inherited = {{"XLA_PYTHON_CLIENT_MEM_FRACTION", ".9"}};
  EXPECT_EQ(Value(MustPlan(Job(Framework::kJax, kHalf), inherited).processes[0].environment,
                  "XLA_PYTHON_CLIENT_MEM_FRACTION"),
            "<absent>");
  EXPECT_EQ(Value(MustPlan(Job(Framework::kJax, kGrowth), inherited).processes[0].environment,
                  "XLA_PYTHON_CLIENT_MEM_FRACTION"),
            ".9");
  spec::TrainingJob job = Job(Framework::kJax, kHalf);
  job.program->environment = {{"XLA_PYTHON_CLIENT_MEM_FRACTION", ".9"}};
  EXPECT_THAT(TryPlan(job).status().message(),
              HasSubstr("contradicts what Lockstep sets; use spec.devices.memory"));
}

TEST(MemoryVariablesTest, HoldsALimitByMpsForEachVisibleDevice) {
  spec::DeviceMemory memory = kTenGiB;
  memory.enforce = spec::MemoryEnforcement::kMps;
  const Plan plan = MustPlan(Job(Framework::kPyTorch, memory), {}, true);
  EXPECT_EQ(Value(plan.processes[1].environment, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0=10240M,1=10240M");
  EXPECT_EQ(Joined(plan.notices), "");
}

TEST(MemoryVariablesTest, RefusesMpsWhereItIsNotUnlessSoft) {
  spec::DeviceMemory memory = kTenGiB;
  memory.enforce = spec::MemoryEnforcement::kMps;
  spec::TrainingJob job = Job(Framework::kPyTorch, memory);
  EXPECT_EQ(TryPlan(job).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(TryPlan(job).status().message(),
              HasSubstr("spec.devices.memory.enforce: MPS needs nvidia-cuda-mps-control"));
  job.roles[0].devices.soft_placement = true;
  const Plan plan = MustPlan(job);
  EXPECT_EQ(Value(plan.processes[0].environment, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "<absent>");
  EXPECT_THAT(Joined(plan.notices), HasSubstr("the limit is not enforced (softPlacement)"));
}

TEST(MemoryShareTest, RefusesMoreThanTheDeviceHas) {
  spec::DeviceMemory memory = kTenGiB;
  memory.limit = 81 * kGiB;
  const auto refused = TryPlan(Job(Framework::kJax, memory));
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(),
              HasSubstr("spec.devices.memory.limit: 81 GiB is too much of GPU 0"));
  EXPECT_THAT(refused.status().message(), HasSubstr("at most 80 GiB"));
}

TEST(MemoryShareTest, CountsAllWhoShareADevice) {
  spec::TrainingJob job = Job(Framework::kJax, kHalf);
  job.roles[0].devices.virtual_devices = {.per_device = 2, .memory_limit = std::nullopt};
  EXPECT_TRUE(TryPlan(job).ok());
  job.roles[0].devices.virtual_devices->per_device = 4;
  EXPECT_THAT(TryPlan(job).status().message(), HasSubstr("which 4 processes share; at most 0.25"));
  job.roles[0].devices.memory = kGrowth;
  job.roles[0].devices.virtual_devices->memory_limit = 21 * kGiB;
  EXPECT_THAT(TryPlan(job).status().message(),
              HasSubstr("spec.devices.virtual.memoryLimit: 21 GiB is too much of GPU 0"));
  job.roles[0].devices.virtual_devices->memory_limit = 20 * kGiB;
  const Plan plan = MustPlan(job);
  EXPECT_EQ(plan.processes.size(), 8u);
  EXPECT_EQ(Value(plan.processes[0].environment, "XLA_CLIENT_MEM_FRACTION"), "0.25");
}

TEST(MemoryShareTest, WarnsOfPreallocationOnASharedDevice) {
  spec::TrainingJob job = Job(Framework::kJax, kPreallocate);
  job.roles[0].devices.virtual_devices = {.per_device = 2, .memory_limit = std::nullopt};
  job.roles[0].devices.visibility = spec::Visibility::kPerReplica;
  EXPECT_THAT(Joined(MustPlan(job).notices), HasSubstr("the first may leave nothing to the others"));
}

TEST(FormatBytesTest, IsShort) {
  EXPECT_EQ(FormatBytes(kGiB), "1 GiB");
  EXPECT_EQ(FormatBytes(512 << 20), "512 MiB");
  EXPECT_EQ(FormatBytes(85520809984), "79.65 GiB");
}

}  // namespace
}  // namespace lockstep::placement
