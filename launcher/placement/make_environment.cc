#include <algorithm>
#include <utility>

#include "common/contract/environment.h"
#include "launcher/placement/assign.h"
#include "launcher/placement/environment_builder.h"
#include "launcher/placement/framework_environment.h"
#include "launcher/placement/memory_share.h"
#include "launcher/placement/role_view.h"
#include "launcher/placement/text_files.h"
#include "launcher/spec/enums.h"

namespace lockstep::placement {
namespace {

constexpr int kLastPort = 65535;
constexpr int kMostThreads = 65536;

// Where this launcher's ranks stand among all.
struct Ranks {
  int offset = 0;
  int world_size = 0;
  int role_offset = 0;  // among those of the same role
  int role_size = 0;
};

Ranks CountRanks(const GenerationFacts& facts) {
  Ranks ranks;
  const std::string& role = facts.replicas[facts.self].role;
  for (size_t i = 0; i < facts.replicas.size(); ++i) {
    const ReplicaFacts& replica = facts.replicas[i];
    if (i < facts.self) {
      ranks.offset += replica.processes;
      if (replica.role == role) ranks.role_offset += replica.processes;
    }
    ranks.world_size += replica.processes;
    if (replica.role == role) ranks.role_size += replica.processes;
  }
  return ranks;
}

Status CheckFacts(const DeviceAssignment& assignment, const GenerationFacts& facts) {
  if (facts.self >= facts.replicas.size()) {
    return Internal("placement: this launcher is not among the replicas");
  }
  const ReplicaFacts& self = facts.replicas[facts.self];
  if (self.role != assignment.role || self.processes != static_cast<int>(assignment.processes.size())) {
    return Internal("placement: " + std::to_string(assignment.processes.size()) + " processes of role " +
                    assignment.role + " were assigned, the generation has " + std::to_string(self.processes) +
                    " of role " + self.role);
  }
  return Status();
}

std::string Join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ",") + part;
  return text;
}

void AddRanks(const ProcessContext& context, EnvironmentBuilder& environment) {
  const GenerationFacts& facts = context.facts;
  environment.Set(contract::kRank, std::to_string(context.rank));
  environment.Set(contract::kWorldSize, std::to_string(context.world_size));
  environment.Set(contract::kLocalRank, std::to_string(context.process.local_rank));
  environment.Set(contract::kLocalWorldSize, std::to_string(context.assignment.processes.size()));
  environment.Set(contract::kGroupRank, std::to_string(facts.self));
  environment.Set(contract::kGroupWorldSize, std::to_string(facts.replicas.size()));
  environment.Set(contract::kMasterAddress, facts.master_address);
  environment.Set(contract::kMasterPort, std::to_string(facts.master_port));
}

void SetUnlessEmpty(EnvironmentBuilder& environment, const char* name, const std::string& value) {
  if (!value.empty()) environment.Set(name, value);
}

void AddOwn(const ProcessContext& context, EnvironmentBuilder& environment) {
  const GenerationFacts& facts = context.facts;
  environment.Set(contract::kJob, context.job.name);
  environment.Set(contract::kAttempt, std::to_string(facts.attempt));
  environment.Set(contract::kGeneration, std::to_string(facts.generation));
  SetUnlessEmpty(environment, contract::kRun, facts.run);
  environment.Set(contract::kRole, context.assignment.role);
  SetUnlessEmpty(environment, contract::kStoreAddress, facts.store_address);
  SetUnlessEmpty(environment, contract::kTokenFile, facts.token_file);
  if (facts.events_fd >= 0) environment.Set(contract::kEventsFd, std::to_string(facts.events_fd));
  const auto& trainer = context.job.trainer;
  const bool checkpoints = trainer && trainer->checkpoint;
  SetUnlessEmpty(environment, contract::kCheckpointDirectory,
                 !facts.checkpoint_directory.empty() ? facts.checkpoint_directory
                 : checkpoints                       ? trainer->checkpoint->directory
                                                     : "");
  if (context.view.program == nullptr) {
    SetUnlessEmpty(environment, contract::kTrainerConfig, facts.trainer_config);
  }
  SetUnlessEmpty(environment, contract::kInterface, context.job.network.interface);
}

// What our trainer goes by, and what a program may.
void AddDevice(const ProcessContext& context, EnvironmentBuilder& environment) {
  const ProcessDevices& process = context.process;
  const bool gpu = process.type == spec::DeviceType::kGpu;
  environment.Set(contract::kDevice, gpu ? "GPU" : "CPU");
  if (!gpu) return;
  environment.Set(contract::kDeviceUuid, Join(process.devices));
  if (process.shared) environment.Set(contract::kSharedDevice, "1");
  environment.Set(contract::kMemoryPolicy, std::string(spec::Name(process.memory.policy)));
  if (process.memory.policy == spec::MemoryPolicy::kFraction && process.memory.fraction) {
    environment.Set(contract::kMemoryFraction, FormatFraction(*process.memory.fraction));
  } else if (process.memory.limit) {
    environment.Set(contract::kMemoryLimit, std::to_string(*process.memory.limit));
  }
  if (context.view.program == nullptr) {
    SetUnlessEmpty(environment, contract::kCudaPlugin, context.facts.cuda_plugin);
  }
}

// The user may have chosen otherwise.
int ThreadsOf(const ProcessPlan& plan) {
  for (const auto& [name, value] : plan.environment) {
    const auto threads = name == contract::kOmpThreads ? ParseInteger(value) : std::nullopt;
    if (threads && *threads > 0 && *threads <= kMostThreads) return static_cast<int>(*threads);
  }
  return plan.devices.threads;
}

Result<ProcessPlan> PlanProcess(const ProcessContext& context, std::vector<std::string>& notices) {
  const spec::Program* program = context.view.program;
  EnvironmentBuilder environment(context.facts.inherited,
                                 program != nullptr ? program->environment : Variables());
  AddRanks(context, environment);
  environment.SetDefault(contract::kOmpThreads, std::to_string(context.process.threads));
  environment.Set(contract::kCudaDeviceOrder, "PCI_BUS_ID");
  environment.Set(contract::kCudaVisibleDevices, Join(context.process.visible));
  AddOwn(context, environment);
  AddDevice(context, environment);
  AddFrameworkVariables(context, environment, notices);
  AddMemoryVariables(context, environment, notices);

  ProcessPlan plan{.rank = context.rank,
                   .local_rank = context.process.local_rank,
                   .role = context.assignment.role,
                   .devices = context.process};
  if (program != nullptr) {
    plan.command = program->command;
    plan.working_directory = program->working_directory;
  } else {
    plan.command = {context.facts.trainer_program};
  }
  if (plan.command.empty() || plan.command.front().empty()) {
    return InvalidArgument(context.view.field + "program.command: the program's name is missing");
  }
  LOCKSTEP_RETURN_IF_ERROR(environment.Build(context.view.field + "program.environment", plan));
  plan.devices.threads = ThreadsOf(plan);
  return plan;
}

}  // namespace

Result<Plan> MakeEnvironment(const spec::TrainingJob& job, const DeviceAssignment& assignment,
                             const GenerationFacts& facts) {
  const auto view = FindRole(job, assignment.role);
  if (!view.ok()) return view.status();
  LOCKSTEP_RETURN_IF_ERROR(CheckFacts(assignment, facts));
  const Ranks ranks = CountRanks(facts);
  if (view->framework() == spec::Framework::kTensorFlow &&
      facts.master_port + ranks.world_size - 1 > kLastPort) {
    return FailedPrecondition("TF_CONFIG: no room for " + std::to_string(ranks.world_size) + " ports from " +
                              std::to_string(facts.master_port) + " on");
  }

  Plan plan{.world_size = ranks.world_size,
            .rank_offset = ranks.offset,
            .physical_devices = assignment.physical_devices,
            .logical_devices = assignment.logical_devices,
            .type = assignment.type,
            .notices = assignment.notices};
  if (view->program != nullptr) plan.prepare = view->program->prepare;
  for (const ProcessDevices& process : assignment.processes) {
    const ProcessContext context{.job = job,
                                 .view = *view,
                                 .assignment = assignment,
                                 .facts = facts,
                                 .process = process,
                                 .rank = ranks.offset + process.local_rank,
                                 .world_size = ranks.world_size,
                                 .role_rank = ranks.role_offset + process.local_rank,
                                 .role_size = ranks.role_size};
    auto planned = PlanProcess(context, plan.notices);
    if (!planned.ok()) return planned.status();
    plan.processes.push_back(std::move(*planned));
  }
  return plan;
}

Result<Plan> Assign(const spec::TrainingJob& job, const DeviceRequest& request, GenerationFacts facts) {
  auto assignment = AssignDevices(job, request);
  if (!assignment.ok()) return assignment.status();
  if (facts.replicas.empty()) {
    for (const spec::Role& role : job.roles) {
      if (role.name == request.role) facts.self = facts.replicas.size();
      DeviceRequest alike = request;
      alike.role = role.name;
      const auto there = AssignDevices(job, alike);
      if (!there.ok()) return there.status();
      for (int index = 0; index < role.replicas; ++index) {
        facts.replicas.push_back({.role = role.name,
                                  .index = index,
                                  .processes = static_cast<int>(there->processes.size()),
                                  .address = facts.master_address});
      }
    }
  }
  return MakeEnvironment(job, *assignment, facts);
}

}  // namespace lockstep::placement
