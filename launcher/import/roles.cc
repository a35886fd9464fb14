#include <algorithm>
#include <array>
#include <utility>

#include "common/lower_case.h"
#include "launcher/import/translation.h"

namespace lockstep::importer {

namespace {

bool Same(const Draft& a, const Draft& b) { return a.pod == b.pod && a.processes == b.processes; }

// Whether a chief does nothing that the first worker would not do.
void FoldChief(std::vector<Draft>& drafts, spec::Framework framework) {
  const auto is = [](std::string_view role) {
    return [role](const Draft& draft) { return draft.role == role; };
  };
  const auto chief = std::find_if(drafts.begin(), drafts.end(), is("chief"));
  if (chief == drafts.end()) return;
  const auto worker = std::find_if(drafts.begin(), drafts.end(), is("worker"));
  if (worker == drafts.end()) {
    chief->role = "worker";
  } else if (framework != spec::Framework::kTensorFlow && Same(*chief, *worker)) {
    chief->where.Say("one role worker with " + std::to_string(chief->replicas + worker->replicas) +
                     " replicas: their pods are alike, and rank 0 is the first");
    worker->replicas += chief->replicas;
    drafts.erase(chief);
  }
}

void FoldDuplicates(std::vector<Draft>& drafts) {
  for (size_t i = 0; i < drafts.size(); ++i) {
    for (size_t k = i + 1; k < drafts.size();) {
      if (drafts[k].role != drafts[i].role) {
        ++k;
        continue;
      }
      if (Same(drafts[i], drafts[k])) {
        drafts[k].where.Say("added to the role " + drafts[i].role + ", whose pods are alike");
        drafts[i].replicas += drafts[k].replicas;
      } else {
        drafts[k].where.Say("left out: a TrainingJob has one role " + drafts[i].role +
                                " (the roles are worker, chief, ps and "
                                "evaluator), and these pods are others; make "
                                "them a job of their own",
                            true);
      }
      drafts.erase(drafts.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
}

spec::Program ProgramOf(const Draft& draft, spec::Framework framework) {
  spec::Program program;
  program.framework = framework;
  program.command = draft.pod.entrypoint;
  program.environment = draft.pod.environment;
  program.working_directory = draft.pod.working_directory;
  return program;
}

}  // namespace

std::string_view RoleNamed(std::string_view name) {
  const std::string lower = LowerCase(name);
  constexpr std::array<std::string_view, 5> kServers = {"ps", "server", "servers", "parameter-server",
                                                        "parameterserver"};
  if (std::find(kServers.begin(), kServers.end(), lower) != kServers.end()) return "ps";
  if (lower.starts_with("eval")) return "evaluator";
  for (const std::string_view chief :
       {"chief", "master", "leader", "driver", "coordinator", "launcher", "head"}) {
    if (lower.find(chief) != std::string::npos) return "chief";
  }
  return "worker";
}

void SetRoles(std::vector<Draft> drafts, spec::Framework framework, spec::TrainingJob& job) {
  FoldChief(drafts, framework);
  FoldDuplicates(drafts);
  if (drafts.empty()) return;
  const auto is_worker = [](const Draft& draft) { return draft.role == "worker"; };
  if (std::none_of(drafts.begin(), drafts.end(), is_worker)) {
    drafts.front().where.Say("the role worker: a TrainingJob has one");
    drafts.front().role = "worker";
  }
  job.program = ProgramOf(*std::find_if(drafts.begin(), drafts.end(), is_worker), framework);
  std::optional<std::chrono::seconds> grace;  // of the role that needs the longest
  for (const Draft& draft : drafts) {
    spec::Role role{.name = draft.role, .replicas = draft.replicas, .processes_per_replica = draft.processes};
    if ((role.name == "chief" || role.name == "evaluator") && role.replicas > 1) {
      draft.where.Say("there is one " + role.name + "; the others are left out", true);
      role.replicas = 1;
    }
    TellOfContainer(draft.pod);
    role.devices = DevicesOf(draft.pod);
    if (draft.virtual_local_rank) role.devices.visibility = spec::Visibility::kPerProcess;
    if (role.devices.type == spec::DeviceType::kTpu) role.processes_per_replica.reset();
    if (const Json pod_template = TemplateOf(draft.pod); !pod_template.is_null()) {
      role.pod_template_json = pod_template.dump(-1, ' ', false, Json::error_handler_t::replace);
    }
    if (spec::Program own = ProgramOf(draft, framework); own != *job.program) role.program = std::move(own);
    if (draft.max_restarts) job.run_policy.max_restarts = *draft.max_restarts;
    if (draft.pod.grace_period)
      grace = std::max(grace.value_or(*draft.pod.grace_period), *draft.pod.grace_period);
    job.roles.push_back(std::move(role));
  }
  if (grace) job.run_policy.termination_grace_period = *grace;
}

}  // namespace lockstep::importer
