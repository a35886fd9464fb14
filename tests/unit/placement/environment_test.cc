#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "launcher/placement/assign.h"
#include "launcher/placement/environment_builder.h"
#include "tests/unit/placement/builders.h"

namespace lockstep::placement {
namespace {

using spec::Framework;
using ::testing::ElementsAre;
using testing::Facts;
using testing::GpuMachine;
using ::testing::HasSubstr;
using testing::Joined;
using testing::Machine;
using testing::ProgramJob;
using testing::TrainerJob;
using testing::Uuid;
using testing::Value;

// `job` with two processes on a machine of four cores, as the second of `facts.replicas` where those are
// given.
Result<Plan> TryPlan(const spec::TrainingJob& job, GenerationFacts facts, const Environment& inherited = {}) {
  spec::TrainingJob two = job;
  for (spec::Role& role : two.roles) role.processes_per_replica = 2;
  facts.inherited = inherited;
  return Assign(two, {.inventory = Machine(1, 4), .inherited = inherited}, facts);
}

Plan MustPlan(const spec::TrainingJob& job, const GenerationFacts& facts = Facts(),
              const Environment& inherited = {}) {
  auto plan = TryPlan(job, facts, inherited);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : Plan{.processes = std::vector<ProcessPlan>(2)};
}

// Replica 1 of three is away: what a program sees has no hole.
TEST(EnvironmentTest, IsContiguousWhereAReplicaIsLeftOut) {
  GenerationFacts facts = Facts();
  facts.replicas = {{.processes = 3, .address = "10.0.0.1"},
                    {.index = 2, .processes = 2, .address = "10.0.0.3"}};
  facts.self = 1;
  const Plan plan = MustPlan(TrainerJob(), facts);
  EXPECT_EQ(plan.rank_offset, 3);
  EXPECT_EQ(Value(plan.processes[0].environment, "RANK"), "3");
  EXPECT_EQ(Value(plan.processes[0].environment, "WORLD_SIZE"), "5");
  EXPECT_EQ(Value(plan.processes[0].environment, "GROUP_RANK"), "1");
  EXPECT_EQ(Value(plan.processes[0].environment, "GROUP_WORLD_SIZE"), "2");
}

TEST(EnvironmentTest, HasWhatEveryProcessGets) {
  GenerationFacts facts = Facts();
  facts.generation = 3;
  facts.attempt = 1;
  facts.replicas = {{.processes = 3, .address = "10.0.0.1"},
                    {.index = 1, .processes = 2, .address = "10.0.0.2"}};
  facts.self = 1;
  spec::TrainingJob job = TrainerJob();
  job.network.interface = "eth0";
  job.trainer->checkpoint = spec::Checkpoint{.directory = "/ckpt"};
  const Plan plan = MustPlan(job, facts);
  EXPECT_EQ(plan.world_size, 5);
  EXPECT_EQ(plan.rank_offset, 3);
  ASSERT_EQ(plan.processes.size(), 2u);
  EXPECT_EQ(plan.processes[1].rank, 4);
  EXPECT_THAT(plan.processes[1].command, ElementsAre("/usr/bin/lockstep-trainer"));
  const Variables expected = {{"RANK", "4"},
                              {"WORLD_SIZE", "5"},
                              {"LOCAL_RANK", "1"},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"GROUP_RANK", "1"},
                              {"GROUP_WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "127.0.0.1"},
                              {"MASTER_PORT", "29500"},
                              {"OMP_NUM_THREADS", "2"},
                              {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
                              {"CUDA_VISIBLE_DEVICES", ""},
                              {"LOCKSTEP_JOB", "mnist"},
                              {"LOCKSTEP_ATTEMPT", "1"},
                              {"LOCKSTEP_GENERATION", "3"},
                              {"LOCKSTEP_ROLE", "worker"},
                              {"LOCKSTEP_ROLE_RANK", "4"},
                              {"LOCKSTEP_ROLE_SIZE", "5"},
                              {"LOCKSTEP_ROLES", "worker=5"},
                              {"LOCKSTEP_INCARNATION", "0"},
                              {"LOCKSTEP_STORE_ADDRESS", "127.0.0.1:4000"},
                              {"LOCKSTEP_TOKEN_FILE", "/run/token"},
                              {"LOCKSTEP_EVENTS_FD", "3"},
                              {"LOCKSTEP_CHECKPOINT_DIRECTORY", "/ckpt"},
                              {"LOCKSTEP_TRAINER_CONFIG", "/run/job.json"},
                              {"LOCKSTEP_INTERFACE", "eth0"},
                              {"LOCKSTEP_DEVICE", "CPU"},
                              {"NCCL_SOCKET_IFNAME", "=eth0"},
                              {"GLOO_SOCKET_IFNAME", "eth0"}};
  EXPECT_EQ(plan.processes[1].changed, expected);
  EXPECT_EQ(plan.processes[1].environment, expected);
}

TEST(EnvironmentTest, ATracesPartsAreNamedByRankAndAskedOfTheTrainerOnly) {
  GenerationFacts facts = Facts();
  facts.trace_folder = "/run/trace";
  facts.trace_steps = 20;
  facts.replicas = {{.processes = 3, .address = "10.0.0.1"},
                    {.index = 1, .processes = 2, .address = "10.0.0.2"}};
  facts.self = 1;
  const Plan traced = MustPlan(TrainerJob(), facts);
  EXPECT_EQ(Value(traced.processes[1].environment, "LOCKSTEP_TRACE_FILE"), "/run/trace/rank-4.jsonl");
  EXPECT_EQ(Value(traced.processes[1].environment, "LOCKSTEP_TRACE_STEPS"), "20");

  facts.trace_folder.clear();
  const Plan plain = MustPlan(TrainerJob(), facts);
  EXPECT_EQ(Value(plain.processes[1].environment, "LOCKSTEP_TRACE_FILE"), "<absent>");
  EXPECT_EQ(Value(plain.processes[1].environment, "LOCKSTEP_TRACE_STEPS"), "<absent>");

  facts.trace_folder = "/run/trace";
  const Plan program = MustPlan(ProgramJob(Framework::kNone), facts);
  EXPECT_EQ(Value(program.processes[1].environment, "LOCKSTEP_TRACE_FILE"), "<absent>");
}

TEST(EnvironmentTest, ShowsAGpuByUuid) {
  const auto plan = Assign(ProgramJob(Framework::kPyTorch), {.inventory = GpuMachine(2)}, Facts());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(Value(plan->processes[1].environment, "CUDA_VISIBLE_DEVICES"), Uuid(0) + "," + Uuid(1));
  EXPECT_EQ(Value(plan->processes[1].environment, "NCCL_MULTI_RANK_GPU_ENABLE"), "<absent>");
  spec::TrainingJob shared = ProgramJob(Framework::kPyTorch);
  shared.roles[0].devices.virtual_devices = {.per_device = 2, .memory_limit = std::nullopt};
  const auto sharing = Assign(shared, {.inventory = GpuMachine(1)}, Facts());
  ASSERT_TRUE(sharing.ok());
  EXPECT_EQ(Value(sharing->processes[1].environment, "NCCL_MULTI_RANK_GPU_ENABLE"), "1");
}

TEST(EnvironmentTest, TellsAProcessItsDeviceAndItsShareOfIt) {
  using spec::MemoryPolicy;
  const struct {
    spec::DeviceMemory memory;
    const char* policy;
    const char* limit;
    const char* fraction;
  } kCases[] = {
      {{}, "Growth", "<absent>", "<absent>"},
      {{.policy = MemoryPolicy::kPreallocate}, "Preallocate", "<absent>", "<absent>"},
      {{.policy = MemoryPolicy::kLimit, .limit = 10 * testing::kGiB}, "Limit", "10737418240", "<absent>"},
      {{.policy = MemoryPolicy::kFraction, .fraction = 0.4}, "Fraction", "<absent>", "0.4"},
  };
  for (const auto& test : kCases) {
    spec::TrainingJob job = ProgramJob(Framework::kNone);
    job.roles[0].devices.memory = test.memory;
    const auto plan = Assign(job, {.inventory = GpuMachine(2)}, Facts());
    ASSERT_TRUE(plan.ok());
    const Variables& environment = plan->processes[1].environment;
    EXPECT_EQ(Value(environment, "LOCKSTEP_DEVICE"), "GPU");
    EXPECT_EQ(Value(environment, "LOCKSTEP_DEVICE_UUID"), Uuid(1));
    EXPECT_EQ(Value(environment, "LOCKSTEP_SHARED_DEVICE"), "<absent>");
    EXPECT_EQ(Value(environment, "LOCKSTEP_MEMORY_POLICY"), test.policy);
    EXPECT_EQ(Value(environment, "LOCKSTEP_MEMORY_LIMIT"), test.limit) << test.policy;
    EXPECT_EQ(Value(environment, "LOCKSTEP_MEMORY_FRACTION"), test.fraction) << test.policy;
  }
  spec::TrainingJob shared = ProgramJob(Framework::kNone);
  shared.roles[0].devices.virtual_devices = {.per_device = 2, .memory_limit = testing::kGiB};
  const auto plan = Assign(shared, {.inventory = GpuMachine(1)}, Facts());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(Value(plan->processes[1].environment, "LOCKSTEP_SHARED_DEVICE"), "1");
  EXPECT_EQ(Value(plan->processes[1].environment, "LOCKSTEP_MEMORY_POLICY"), "Limit");
  EXPECT_EQ(Value(plan->processes[1].environment, "LOCKSTEP_MEMORY_LIMIT"), "1073741824");
}

TEST(EnvironmentTest, ScrubsOtherLaunchersAndKeepsTheRest) {
  const Environment inherited = {{"PATH", "/bin"},
                                 {"HOME", "/root"},
                                 {"NCCL_DEBUG", "INFO"},
                                 {"OMPI_COMM_WORLD_RANK", "7"},
                                 {"PMIX_RANK", "7"},
                                 {"PMI_SIZE", "9"},
                                 {"SLURM_PROCID", "7"},
                                 {"TORCHELASTIC_RUN_ID", "old"},
                                 {"HOROVOD_RANK", "7"},
                                 {"TF_CONFIG", "{}"},
                                 {"RANK", "7"},
                                 {"NODE_RANK", "7"},
                                 {"LOCKSTEP_TOKEN_FILE", "/old/token"},
                                 {"LOCKSTEP_SOMETHING", "old"},
                                 {"CUDA_VISIBLE_DEVICES", "5"}};
  const Plan plan = MustPlan(ProgramJob(Framework::kNone), Facts(), inherited);
  const Variables& environment = plan.processes[0].environment;
  EXPECT_EQ(Value(environment, "PATH"), "/bin");
  EXPECT_EQ(Value(environment, "NCCL_DEBUG"), "INFO");
  EXPECT_EQ(Value(environment, "RANK"), "0");
  EXPECT_EQ(Value(environment, "CUDA_VISIBLE_DEVICES"), "");
  EXPECT_EQ(Value(environment, "LOCKSTEP_TOKEN_FILE"), "/run/token");
  for (const char* name :
       {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_SIZE", "SLURM_PROCID", "TORCHELASTIC_RUN_ID",
        "HOROVOD_RANK", "TF_CONFIG", "NODE_RANK", "LOCKSTEP_SOMETHING"}) {
    EXPECT_EQ(Value(environment, name), "<absent>") << name;
  }
  std::set<std::string> names;
  for (const auto& [name, value] : environment)
    EXPECT_TRUE(names.insert(name).second) << name << " stands twice";
}

TEST(EnvironmentTest, LeavesTheUsersThreads) {
  const Plan inherited = MustPlan(TrainerJob(), Facts(), {{"OMP_NUM_THREADS", "3"}});
  EXPECT_EQ(Value(inherited.processes[0].environment, "OMP_NUM_THREADS"), "3");
  EXPECT_EQ(inherited.processes[0].devices.threads, 3);
  spec::TrainingJob job = ProgramJob(Framework::kNone);
  job.program->environment = {{"OMP_NUM_THREADS", "5"}};
  const Plan given = MustPlan(job, Facts(), {{"OMP_NUM_THREADS", "3"}});
  EXPECT_EQ(Value(given.processes[0].environment, "OMP_NUM_THREADS"), "5");
  EXPECT_EQ(given.processes[0].devices.threads, 5);
}

TEST(EnvironmentTest, LetsTheManifestOverrideWhatIsInherited) {
  spec::TrainingJob job = ProgramJob(Framework::kNone);
  job.program->environment = {{"MODE", "fast"}, {"EXTRA", "1"}};
  job.program->working_directory = "/srv";
  job.program->prepare = {"python3", "download.py"};
  const Plan plan = MustPlan(job, Facts(), {{"MODE", "slow"}, {"LANG", "C"}});
  EXPECT_EQ(Value(plan.processes[0].environment, "MODE"), "fast");
  EXPECT_EQ(Value(plan.processes[0].environment, "LANG"), "C");
  EXPECT_EQ(Value(plan.processes[0].changed, "LANG"), "<absent>");
  EXPECT_THAT(plan.processes[0].from_manifest, ElementsAre("MODE", "EXTRA"));
  EXPECT_EQ(plan.processes[0].working_directory, "/srv");
  EXPECT_THAT(plan.processes[0].command, ElementsAre("python3", "train.py"));
  ASSERT_EQ(plan.prepare.size(), 1U);
  EXPECT_THAT(plan.prepare[0].command, ElementsAre("python3", "download.py"));
  EXPECT_EQ(plan.prepare[0].working_directory, "/srv");
  EXPECT_EQ(Value(plan.prepare[0].environment, "MODE"), "fast");
  EXPECT_EQ(Value(plan.prepare[0].environment, "LANG"), "C");
  EXPECT_EQ(Value(plan.prepare[0].environment, "RANK"), "<absent>");
  EXPECT_EQ(Value(plan.processes[0].environment, "LOCKSTEP_TRAINER_CONFIG"), "<absent>");
}

TEST(EnvironmentTest, RefusesAManifestThatSetsWhatIsTheLaunchers) {
  const struct {
    const char* name;
    const char* message;
  } kCases[] = {
      {"RANK", "spec.program.environment: RANK is set by Lockstep"},
      {"MASTER_PORT", "MASTER_PORT is set by Lockstep"},
      {"CUDA_VISIBLE_DEVICES", "use spec.devices.visible"},
      {"LOCKSTEP_ANYTHING", "LOCKSTEP_ANYTHING is set by Lockstep"},
      {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RUN_ID is set by Lockstep"},
      {"A=B", "is not the name of a variable"},
      {"", "is not the name of a variable"},
  };
  for (const auto& test : kCases) {
    spec::TrainingJob job = ProgramJob(Framework::kPyTorch);
    job.program->environment = {{test.name, "1"}};
    const auto plan = TryPlan(job, Facts());
    ASSERT_FALSE(plan.ok()) << test.name;
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(plan.status().message(), HasSubstr(test.message));
  }
  spec::TrainingJob twice = ProgramJob(Framework::kPyTorch);
  twice.program->environment = {{"A", "1"}, {"A", "2"}};
  EXPECT_THAT(TryPlan(twice, Facts()).status().message(), HasSubstr("A is set twice"));
}

TEST(FrameworkTest, TellsTensorFlowItsCluster) {
  spec::TrainingJob job = ProgramJob(Framework::kTensorFlow);
  job.roles = {{.name = "ps", .replicas = 1}, {.name = "worker", .replicas = 2}, {.name = "evaluator"}};
  GenerationFacts facts = Facts();
  facts.replicas = {{.role = "ps", .processes = 1, .address = "h0"},
                    {.role = "worker", .processes = 1, .address = "h1"},
                    {.role = "worker", .index = 1, .processes = 2, .address = "fd00::2"},
                    {.role = "evaluator", .processes = 1, .address = "h3"}};
  facts.self = 2;
  const Plan plan = MustPlan(job, facts);
  const auto config = nlohmann::json::parse(Value(plan.processes[1].environment, "TF_CONFIG"));
  EXPECT_EQ(config, nlohmann::json::parse(R"({
    "cluster": {"ps": ["h0:29500"], "worker": ["h1:29501", "[fd00::2]:29502", "[fd00::2]:29503"]},
    "task": {"type": "worker", "index": 2}})"));
  EXPECT_EQ(plan.processes[1].rank, 3);
}

TEST(FrameworkTest, LeavesALoneTensorFlowProcessWithoutACluster) {
  const auto plan = Assign(ProgramJob(Framework::kTensorFlow), {.inventory = Machine(1, 4)}, Facts());
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->processes.size(), 1u);
  EXPECT_EQ(Value(plan->processes[0].environment, "TF_CONFIG"), "<absent>");
}

TEST(FrameworkTest, RefusesPortsBeyondTheLast) {
  GenerationFacts facts = Facts();
  facts.master_port = 65535;
  EXPECT_EQ(TryPlan(ProgramJob(Framework::kTensorFlow), facts).status().code(),
            StatusCode::kFailedPrecondition);
  facts.master_port = 65534;
  EXPECT_TRUE(TryPlan(ProgramJob(Framework::kTensorFlow), facts).ok());
}

TEST(FrameworkTest, SetsWhatTorchrunSets) {
  GenerationFacts facts = Facts();
  facts.generation = 2;
  facts.replicas = {{.role = "ps", .processes = 3}, {.role = "worker", .processes = 2}};
  facts.self = 1;
  spec::TrainingJob job = ProgramJob(Framework::kPyTorch);
  job.run_policy.max_restarts = 7;
  const Plan plan = MustPlan(job, facts);
  const Variables& environment = plan.processes[1].environment;
  EXPECT_EQ(Value(environment, "TORCHELASTIC_RUN_ID"), "mnist");
  EXPECT_EQ(Value(environment, "TORCHELASTIC_RESTART_COUNT"), "2");
  EXPECT_EQ(Value(environment, "TORCHELASTIC_MAX_RESTARTS"), "7");
  EXPECT_EQ(Value(environment, "TORCHELASTIC_USE_AGENT_STORE"), "False");
  EXPECT_EQ(Value(environment, "ROLE_RANK"), "1");
  EXPECT_EQ(Value(environment, "ROLE_WORLD_SIZE"), "2");
  EXPECT_EQ(Value(environment, "ROLE_NAME"), "worker");
  EXPECT_EQ(Value(environment, "RANK"), "4");
  EXPECT_EQ(Value(environment, "LOCKSTEP_ROLE_RANK"), "1");
  EXPECT_EQ(Value(environment, "LOCKSTEP_ROLE_SIZE"), "2");
  EXPECT_EQ(Value(environment, "LOCKSTEP_ROLES"), "ps=3,worker=2");
  // On the CPU no allocator of a GPU is spoken of.
  EXPECT_EQ(Value(environment, "PYTORCH_ALLOC_CONF"), "<absent>");
}

TEST(FrameworkTest, TellsJaxWhereToMeet) {
  GenerationFacts facts = Facts();
  facts.master_address = "::1";
  const Plan plan = MustPlan(ProgramJob(Framework::kJax), facts);
  EXPECT_EQ(Value(plan.processes[1].environment, "JAX_COORDINATOR_ADDRESS"), "[::1]:29500");
  EXPECT_EQ(Value(plan.processes[1].environment, "JAX_NUM_PROCESSES"), "2");
  EXPECT_EQ(Value(plan.processes[1].environment, "JAX_PROCESS_ID"), "1");
  EXPECT_EQ(Value(plan.processes[1].environment, "JAX_PLATFORMS"), "cpu");
  // By which jax.distributed.initialize() finds out what JAX's own variables do not tell it.
  EXPECT_NE(Value(plan.processes[1].environment, "OMPI_MCA_orte_hnp_uri"), "<absent>");
  EXPECT_EQ(Value(plan.processes[1].environment, "OMPI_COMM_WORLD_SIZE"), "2");
  EXPECT_EQ(Value(plan.processes[1].environment, "OMPI_COMM_WORLD_RANK"), "1");
  EXPECT_EQ(Value(plan.processes[1].environment, "JAX_LOCAL_DEVICE_IDS"), "0");
}

TEST(FrameworkTest, HorovodAndMpiGetRanksAndTheirServer) {
  GenerationFacts facts = Facts();
  facts.mpi = {{{"PMIX_RANK", "0"}}, {{"PMIX_RANK", "1"}, {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4711"}}};
  facts.mpi_folder = "/dev/shm/mine";
  for (const Framework framework : {Framework::kMpi, Framework::kHorovod}) {
    const Plan plan = MustPlan(ProgramJob(framework), facts, {{"PMIX_RANK", "7"}, {"OMPI_MCA_btl", "tcp"}});
    const Variables& environment = plan.processes[1].environment;
    EXPECT_EQ(Value(environment, "OMPI_COMM_WORLD_RANK"), "1");
    EXPECT_EQ(Value(environment, "OMPI_COMM_WORLD_LOCAL_SIZE"), "2");
    EXPECT_EQ(Value(environment, "PMIX_RANK"), "1");
    EXPECT_EQ(Value(environment, "JSM_JSRUN_PORT"), "0");
    EXPECT_EQ(Value(environment, "OMPI_MCA_btl_sm_backing_directory"), "/dev/shm/mine");
    EXPECT_EQ(Value(environment, "HOROVOD_GLOO_RENDEZVOUS_PORT"), "4711");
    EXPECT_EQ(Value(environment, "HOROVOD_RANK"), framework == Framework::kHorovod ? "1" : "<absent>");
    EXPECT_THAT(plan.notices, ElementsAre());
  }
  const Plan plan = MustPlan(ProgramJob(Framework::kHorovod));
  for (const auto& [name, value] : Variables{{"HOROVOD_SIZE", "2"},
                                             {"HOROVOD_LOCAL_RANK", "1"},
                                             {"HOROVOD_LOCAL_SIZE", "2"},
                                             {"HOROVOD_CROSS_RANK", "0"},
                                             {"HOROVOD_CROSS_SIZE", "1"},
                                             {"HOROVOD_HOSTNAME", "machine-0"},
                                             {"PMIX_RANK", "<absent>"},
                                             {"JSM_JSRUN_PORT", "<absent>"}}) {
    EXPECT_EQ(Value(plan.processes[1].environment, name), value) << name;
  }
}

TEST(AssignTest, GivesTheSamePlanForTheSameInput) {
  const Plan one = MustPlan(ProgramJob(Framework::kPyTorch), Facts(), {{"B", "2"}, {"A", "1"}});
  const Plan two = MustPlan(ProgramJob(Framework::kPyTorch), Facts(), {{"A", "1"}, {"B", "2"}});
  EXPECT_EQ(one.processes[1].environment, two.processes[1].environment);
}

TEST(AssignTest, TakesTheOtherReplicasToBeLikeThisOne) {
  spec::TrainingJob job = TrainerJob();
  job.roles[0].replicas = 3;
  const Plan plan = MustPlan(job);
  EXPECT_EQ(plan.world_size, 6);
  EXPECT_EQ(plan.rank_offset, 0);
}

TEST(AssignTest, RefusesAGenerationThatDisagrees) {
  GenerationFacts facts = Facts();
  facts.replicas = {{.processes = 3}};
  EXPECT_EQ(TryPlan(TrainerJob(), facts).status().code(), StatusCode::kInternal);
  facts.replicas = {{.processes = 2}};
  facts.self = 1;
  EXPECT_EQ(TryPlan(TrainerJob(), facts).status().code(), StatusCode::kInternal);
}

TEST(RolesTest, OneMachineRunsAllRolesWithAllTheirReplicas) {
  spec::TrainingJob job = ProgramJob(Framework::kNone);
  job.roles = {{.name = "worker", .replicas = 2, .processes_per_replica = 2},
               {.name = "ps", .replicas = 2},
               {.name = "evaluator"}};
  const auto plan = AssignAll(job, {.inventory = Machine(1, 14)}, Facts());
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  ASSERT_EQ(plan->processes.size(), 7u);
  EXPECT_EQ(plan->world_size, 7);
  for (size_t i = 0; i < plan->processes.size(); ++i) {
    const ProcessPlan& process = plan->processes[i];
    const std::string number = std::to_string(i);
    EXPECT_EQ(Value(process.environment, "RANK"), number);
    EXPECT_EQ(Value(process.environment, "LOCAL_RANK"), number);
    EXPECT_EQ(Value(process.environment, "LOCAL_WORLD_SIZE"), "7");
    EXPECT_EQ(Value(process.environment, "GROUP_WORLD_SIZE"), "1");
    EXPECT_EQ(Value(process.environment, "OMP_NUM_THREADS"), "2");
    EXPECT_EQ(Value(process.environment, "LOCKSTEP_ROLES"), "worker=4,ps=2,evaluator=1");
    EXPECT_EQ(process.local_rank, static_cast<int>(i));
    EXPECT_TRUE(process.devices.cpus.empty());
  }
  EXPECT_EQ(plan->processes[5].role, "ps");
  EXPECT_EQ(plan->processes[5].role_rank, 1);
}

TEST(RolesTest, RolesOnTheSameGpuAreTold) {
  spec::TrainingJob job = ProgramJob(Framework::kNone);
  job.roles = {{.name = "worker", .processes_per_replica = 1}, {.name = "evaluator"}};
  job.roles[1].devices.visible = {"1"};
  const auto apart = AssignAll(job, {.inventory = GpuMachine(2)}, Facts());
  ASSERT_TRUE(apart.ok()) << apart.status().ToString();
  EXPECT_EQ(Value(apart->processes[1].environment, "LOCKSTEP_DEVICE_UUID"), Uuid(1));
  job.roles[0].devices.visible = {"1"};
  const auto together = AssignAll(job, {.inventory = GpuMachine(2)}, Facts());
  ASSERT_TRUE(together.ok());
  for (const ProcessPlan& process : together->processes) {
    EXPECT_EQ(Value(process.environment, "LOCKSTEP_SHARED_DEVICE"), "1");
  }
}

TEST(RolesTest, TheProcessesOfARoleAreOneJaxJob) {
  GenerationFacts facts = Facts();
  facts.replicas = {{.role = "evaluator", .processes = 1, .address = "h0"},
                    {.role = "worker", .processes = 1, .address = "h1"},
                    {.role = "worker", .index = 1, .processes = 2, .address = "h2"}};
  facts.self = 2;
  spec::TrainingJob job = ProgramJob(Framework::kJax);
  job.roles = {{.name = "evaluator"}, {.name = "worker", .replicas = 2}};
  const Plan plan = MustPlan(job, facts);
  EXPECT_EQ(Value(plan.processes[1].environment, "JAX_COORDINATOR_ADDRESS"), "h1:29501");
  EXPECT_EQ(Value(plan.processes[1].environment, "JAX_NUM_PROCESSES"), "3");
  EXPECT_EQ(Value(plan.processes[1].environment, "JAX_PROCESS_ID"), "2");
  EXPECT_EQ(Value(plan.processes[1].environment, "RANK"), "3");
}

}  // namespace
}  // namespace lockstep::placement
