#include <algorithm>
#include <utility>

#include "common/contract/environment.h"
#include "launcher/placement/assign.h"
#include "launcher/placement/environment_builder.h"
#include "launcher/placement/expand.h"
#include "launcher/placement/framework_environment.h"
#include "launcher/placement/memory_share.h"
#include "launcher/placement/role_view.h"
#include "launcher/placement/text_files.h"
#include "launcher/spec/enums.h"
#include "launcher/spec/roles.h"

namespace lockstep::placement {
namespace {

constexpr int kLastPort = 65535;
constexpr int kMostThreads = 65536;

// Where an assignment's ranks stand among all.
struct Ranks {
  int offset = 0;
  int world_size = 0;
  int role_offset = 0;  // among those of the same role
  int role_size = 0;
  int role_first = -1;  // the role's first
  std::string role_address = {};
};

// `self`: of facts.replicas.
Ranks CountRanks(const GenerationFacts& facts, size_t self) {
  Ranks ranks;
  const std::string& role = facts.replicas[self].role;
  for (size_t i = 0; i < facts.replicas.size(); ++i) {
    const ReplicaFacts& replica = facts.replicas[i];
    if (replica.role == role) {
      if (ranks.role_first < 0) {
        ranks.role_first = ranks.world_size;
        ranks.role_address = replica.address;
      }
      if (i < self) ranks.role_offset += replica.processes;
      ranks.role_size += replica.processes;
    }
    if (i < self) ranks.offset += replica.processes;
    ranks.world_size += replica.processes;
  }
  return ranks;
}

// "worker=4,ps=2".
std::string CountRoles(const GenerationFacts& facts) {
  std::vector<std::pair<std::string, int>> roles;
  for (const ReplicaFacts& replica : facts.replicas) {
    if (roles.empty() || roles.back().first != replica.role) roles.emplace_back(replica.role, 0);
    roles.back().second += replica.processes;
  }
  std::string text;
  for (const auto& [role, processes] : roles) {
    text += (text.empty() ? "" : ",") + role + "=" + std::to_string(processes);
  }
  return text;
}

Status CheckFacts(const DeviceAssignment& assignment, const GenerationFacts& facts, size_t index) {
  if (index >= facts.replicas.size()) {
    return Internal("placement: this launcher is not among the replicas");
  }
  const ReplicaFacts& self = facts.replicas[index];
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

std::string TracePartFile(const std::string& folder, int rank) {
  return folder + "/rank-" + std::to_string(rank) + ".jsonl";
}

void AddRanks(const ProcessContext& context, EnvironmentBuilder& environment) {
  const GenerationFacts& facts = context.facts;
  environment.Set(contract::kRank, std::to_string(context.rank));
  environment.Set(contract::kWorldSize, std::to_string(context.world_size));
  environment.Set(contract::kLocalRank, std::to_string(context.process.local_rank));
  environment.Set(contract::kLocalWorldSize, std::to_string(context.local_size));
  environment.Set(contract::kGroupRank, std::to_string(context.machine));
  environment.Set(contract::kGroupWorldSize, std::to_string(context.machines));
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
  environment.Set(contract::kRoleRank, std::to_string(context.role_rank));
  environment.Set(contract::kRoleSize, std::to_string(context.role_size));
  environment.Set(contract::kRoles, CountRoles(facts));
  environment.Set(contract::kIncarnation, std::to_string(facts.incarnation));
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
    if (!facts.trace_folder.empty()) {
      environment.Set(contract::kTraceFile, TracePartFile(facts.trace_folder, context.rank));
      environment.Set(contract::kTraceSteps, std::to_string(facts.trace_steps));
    }
  }
  SetUnlessEmpty(environment, contract::kInterface, context.job.network.interface);
}

// What our trainer goes by, and what a program may.
void AddDevice(const ProcessContext& context, EnvironmentBuilder& environment) {
  const ProcessDevices& process = context.process;
  const bool gpu = process.type == spec::DeviceType::kGpu;
  environment.Set(contract::kDevice, std::string(spec::Name(process.type)));
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

// With what the launcher and the manifest set: what comes from a file or from the launcher's environment may
// be secret, and a command is seen by all.
void ExpandCommand(ProcessPlan& plan) {
  Environment variables;
  for (const auto& [name, value] : plan.changed) {
    if (!plan.from_files.contains(name)) variables[name] = value;
  }
  for (std::string& word : plan.command) word = Expand(word, variables);
  plan.working_directory = Expand(plan.working_directory, variables);
}

Result<ProcessPlan> PlanProcess(const ProcessContext& context, std::vector<std::string>& notices) {
  const spec::Program* program = context.view.program;
  EnvironmentBuilder environment(context.facts.inherited,
                                 program != nullptr ? program->environment : Variables(),
                                 program != nullptr ? VariablesOf(*program, context.facts.environment_files)
                                                    : std::vector<FileVariable>());
  AddRanks(context, environment);
  environment.SetDefault(contract::kOmpThreads, std::to_string(context.process.threads));
  environment.Set(contract::kCudaDeviceOrder, "PCI_BUS_ID");
  environment.Set(contract::kCudaVisibleDevices, Join(context.process.visible));
  AddOwn(context, environment);
  AddDevice(context, environment);
  AddTpuVariables(context, environment);
  AddFrameworkVariables(context, environment);
  AddMemoryVariables(context, environment, notices);

  ProcessPlan plan{.rank = context.rank,
                   .local_rank = context.process.local_rank,
                   .role = context.assignment.role,
                   .role_rank = context.role_rank,
                   .own_trainer = program == nullptr,
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
  ExpandCommand(plan);
  plan.devices.threads = ThreadsOf(plan);
  return plan;
}

}  // namespace

Result<Plan> MakeEnvironment(const spec::TrainingJob& job, const std::vector<DeviceAssignment>& assignments,
                             const GenerationFacts& facts) {
  Plan plan;
  int local_size = 0;
  for (const DeviceAssignment& assignment : assignments) {
    local_size += static_cast<int>(assignment.processes.size());
  }
  // Several roles on one machine: there is no other.
  const bool alone = assignments.size() > 1;
  for (size_t part = 0; part < assignments.size(); ++part) {
    const DeviceAssignment& assignment = assignments[part];
    const auto view = FindRole(job, assignment.role);
    if (!view.ok()) return view.status();
    LOCKSTEP_RETURN_IF_ERROR(CheckFacts(assignment, facts, facts.self + part));
    const Ranks ranks = CountRanks(facts, facts.self + part);
    const bool ports_by_rank = view->framework() == spec::Framework::kTensorFlow ||
                               (view->framework() == spec::Framework::kJax && ranks.role_first > 0);
    if (ports_by_rank && facts.master_port + ranks.world_size - 1 > kLastPort) {
      return FailedPrecondition(FrameworkName(view->framework()) + ": no room for " +
                                std::to_string(ranks.world_size) + " ports from " +
                                std::to_string(facts.master_port) + " on");
    }
    if (part == 0) {
      plan.world_size = ranks.world_size;
      plan.rank_offset = ranks.offset;
      plan.type = assignment.type;
    }
    if (assignment.type == spec::DeviceType::kGpu) plan.type = assignment.type;
    plan.physical_devices = std::max(plan.physical_devices, assignment.physical_devices);
    plan.logical_devices += assignment.logical_devices;
    for (const std::string& notice : assignment.notices) AddNotice(plan.notices, notice);
    for (size_t i = 0; i < assignment.processes.size(); ++i) {
      const int index = static_cast<int>(i);
      auto planned = PlanProcess({.job = job,
                                  .view = *view,
                                  .assignment = assignment,
                                  .facts = facts,
                                  .process = assignment.processes[i],
                                  .index = index,
                                  .rank = ranks.offset + index,
                                  .world_size = ranks.world_size,
                                  .local_size = local_size,
                                  .machine = alone ? 0 : static_cast<int>(facts.self),
                                  .machines = alone ? 1 : static_cast<int>(facts.replicas.size()),
                                  .role_rank = ranks.role_offset + index,
                                  .role_size = ranks.role_size,
                                  .role_first_rank = ranks.role_first,
                                  .role_address = ranks.role_address},
                                 plan.notices);
      if (!planned.ok()) return planned.status();
      plan.processes.push_back(std::move(*planned));
    }
  }
  auto prepare = Preparations(job, assignments, facts.inherited, facts.environment_files);
  if (!prepare.ok()) return prepare.status();
  plan.prepare = std::move(*prepare);
  return plan;
}

bool ListenOnPortEach(const spec::TrainingJob& job) {
  return std::any_of(job.roles.begin(), job.roles.end(), [&](const spec::Role& role) {
    const spec::Program* const program = spec::ProgramOf(job, role);
    return program != nullptr && (program->framework == spec::Framework::kTensorFlow ||
                                  (program->framework == spec::Framework::kJax && job.roles.size() > 1));
  });
}

Result<std::vector<Preparation>> Preparations(const spec::TrainingJob& job,
                                              const std::vector<DeviceAssignment>& assignments,
                                              const Environment& inherited, const EnvironmentFiles& files) {
  std::vector<std::string> devices;
  for (const DeviceAssignment& assignment : assignments) {
    for (const ProcessDevices& process : assignment.processes) {
      for (const std::string& device : process.visible) {
        if (std::find(devices.begin(), devices.end(), device) == devices.end()) devices.push_back(device);
      }
    }
  }
  std::vector<Preparation> preparations;
  for (const DeviceAssignment& assignment : assignments) {
    const auto view = FindRole(job, assignment.role);
    if (!view.ok()) return view.status();
    if (view->program == nullptr || view->program->prepare.empty()) continue;
    EnvironmentBuilder environment(inherited, view->program->environment, VariablesOf(*view->program, files));
    environment.Set(contract::kJob, job.name);
    environment.Set(contract::kCudaDeviceOrder, "PCI_BUS_ID");
    environment.Set(contract::kCudaVisibleDevices, Join(devices));
    ProcessPlan built;
    LOCKSTEP_RETURN_IF_ERROR(environment.Build(view->field + "program.environment", built));
    Preparation preparation{.command = view->program->prepare,
                            .environment = std::move(built.environment),
                            .from_manifest = view->program->environment,
                            .environment_files = view->program->environment_files,
                            .working_directory = view->program->working_directory};
    if (std::find(preparations.begin(), preparations.end(), preparation) == preparations.end())
      preparations.push_back(std::move(preparation));
  }
  return preparations;
}

Result<Plan> Assign(const spec::TrainingJob& job, const DeviceRequest& request, GenerationFacts facts) {
  auto assignment = AssignDevices(job, request);
  if (!assignment.ok()) return assignment.status();
  if (facts.replicas.empty()) {
    const size_t index = facts.self;
    for (const spec::Role& role : job.roles) {
      if (role.name == request.role) facts.self = facts.replicas.size() + index;
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
  return MakeEnvironment(job, {*assignment}, facts);
}

Result<Plan> AssignAll(const spec::TrainingJob& job, const DeviceRequest& request, GenerationFacts facts) {
  const auto assignments = AssignRoles(job, request);
  if (!assignments.ok()) return assignments.status();
  facts.self = 0;
  facts.replicas.clear();
  for (const DeviceAssignment& assignment : *assignments) {
    facts.replicas.push_back({.role = assignment.role,
                              .processes = static_cast<int>(assignment.processes.size()),
                              .address = facts.master_address});
  }
  return MakeEnvironment(job, *assignments, facts);
}

}  // namespace lockstep::placement
