#include "launcher/import/translation.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "launcher/import/command_line.h"
#include "launcher/spec/enums.h"
#include "launcher/spec/quote.h"

namespace lockstep::importer {

namespace {

constexpr size_t kMaxName = 40;

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// What Kubernetes wrote into an object, or those who look after it.
bool IsWrittenByCluster(std::string_view field) {
  constexpr std::array<std::string_view, 10> kFields = {"creationTimestamp", "deletionGracePeriodSeconds",
                                                        "deletionTimestamp", "finalizers",
                                                        "generation",        "managedFields",
                                                        "ownerReferences",   "resourceVersion",
                                                        "selfLink",          "uid"};
  return std::find(kFields.begin(), kFields.end(), field) != kFields.end();
}

// Of labels and annotations that only those who made up the other kind read.
bool IsTheirs(std::string_view key) {
  const std::string_view domain = key.substr(0, key.find('/'));
  if (domain.size() == key.size()) return false;
  constexpr std::array<std::string_view, 4> kDomains = {"jobset.sigs.k8s.io", "jobset.x-k8s.io",
                                                        "kubeflow.org", "volcano.sh"};
  return key == "kubectl.kubernetes.io/last-applied-configuration" ||
         std::any_of(kDomains.begin(), kDomains.end(),
                     [&](std::string_view theirs) { return domain.ends_with(theirs); });
}

void ReadName(const Field& metadata, spec::TrainingJob& job) {
  Field from = metadata["name"];
  std::string name = from.Text().value_or("");
  if (name.empty()) {
    from = metadata["generateName"];
    name = from.Text().value_or("");
    while (name.ends_with('-')) name.pop_back();
    if (!name.empty()) from.Say("metadata.name: " + name + ", since a TrainingJob is named by who writes it");
  }
  std::string fit;
  for (const char c : Lower(name)) {
    const bool keeps = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (fit.size() < kMaxName && (keeps || !fit.empty())) fit += keeps ? c : '-';
  }
  while (fit.ends_with('-')) fit.pop_back();
  if (fit.empty() || std::isdigit(static_cast<unsigned char>(fit[0])) != 0)
    fit = ("job-" + fit).substr(0, kMaxName);
  while (fit.ends_with('-')) fit.pop_back();
  if (fit != name) {
    (from.present() ? from : metadata)
        .Say("becomes " + fit + ": a name has at most 40 small letters, digits and -, a letter first");
  }
  job.name = fit;
}

void ReadMap(const Field& map, std::map<std::string, std::string>& to) {
  for (const auto& [key, field] : map.Entries()) {
    if (IsTheirs(key)) {
      field.LeaveOut("means something to others only; left out");
    } else if (std::optional<std::string> text = field.Text()) {
      to[key] = std::move(*text);
    }
  }
}

// The words of a command, of a script that is one command, or none: `script` is then whether it is a script.
std::optional<std::vector<Word>> WordsOfCommand(const std::vector<std::string>& command, bool* script) {
  const std::string_view program = command.empty() ? std::string_view() : BaseName(command[0]);
  const bool shell =
      program == "sh" || program == "bash" || program == "ash" || program == "dash" || program == "zsh";
  *script = shell && command.size() == 3 && command[1].starts_with('-') && command[1].ends_with('c');
  if (*script) return SplitCommand(command[2]);
  return WordsOf(command);
}

bool Mentions(const std::vector<std::string>& command, std::string_view word) {
  return std::any_of(command.begin(), command.end(),
                     [&](const std::string& text) { return text.find(word) != std::string::npos; });
}

// torchrun reads its options from PET_NPROC_PER_NODE and the like as well.
std::optional<std::string> TakeVariables(Pod& pod) {
  std::optional<std::string> processes;
  std::erase_if(pod.environment, [&](const auto& variable) {
    if (!variable.first.starts_with("PET_")) return false;
    const bool known = variable.first == "PET_NPROC_PER_NODE";
    if (known) processes = variable.second;
    if (pod.container_field) {
      pod.container_field->Say(variable.first + "=" + variable.second +
                                   (known ? " of env: processesPerReplica"
                                          : " of env: torchrun's option; left out, give it to torchrun"),
                               !known);
    }
    return true;
  });
  return processes;
}

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
        drafts[k].where.Say(
            "left out: a TrainingJob has one role " + drafts[i].role +
                " (the roles are worker, chief, ps and evaluator), and these pods are others; make "
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

void ReadObject(const Field& object, spec::TrainingJob& job) {
  object["apiVersion"].Text();
  object["kind"].Text();
  if (const Field status = object["status"]; status.present())
    status.Explain("written by the cluster; not needed");
  const Field metadata = object["metadata"];
  ReadName(metadata, job);
  if (std::optional<std::string> space = metadata["namespace"].Text()) job.namespace_name = *space;
  ReadMap(metadata["labels"], job.labels);
  ReadMap(metadata["annotations"], job.annotations);
  for (const auto& [key, field] : metadata.Entries()) {
    if (IsWrittenByCluster(key) && field.present()) field.Explain("written by the cluster; not needed");
  }
}

std::optional<int> ReadCount(const Field& field, int least) {
  const std::optional<int64_t> number = field.Integer();
  if (!number) return std::nullopt;
  constexpr int64_t kMost = 1'000'000'000;
  if (*number >= least && *number <= kMost) return static_cast<int>(*number);
  field.LeaveOut("is not from " + std::to_string(least) + " to " + std::to_string(kMost) + "; left out");
  return std::nullopt;
}

std::string_view RoleNamed(std::string_view name) {
  const std::string lower = Lower(name);
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

spec::Framework GuessFramework(const Pod& pod) {
  using enum spec::Framework;
  static constexpr std::array<std::pair<std::string_view, spec::Framework>, 6> kWords = {
      {{"horovod", kHorovod},
       {"torch", kPyTorch},
       {"tensorflow", kTensorFlow},
       {"tf-", kTensorFlow},
       {"keras", kTensorFlow},
       {"jax", kJax}}};
  std::string text = Lower(pod.image);
  for (const auto* words : {&pod.entrypoint, &pod.arguments}) {
    for (const std::string& word : *words) text += "\n" + Lower(word);
  }
  for (const auto& [word, framework] : kWords) {
    if (text.find(word) == std::string::npos) continue;
    if (pod.container_field) {
      pod.container_field->Say("program.framework: " + std::string(spec::Name(framework)) +
                               ", since image or command "
                               "say " +
                               spec::Quoted(word) + "; it decides which variables the processes get");
    }
    return framework;
  }
  if (pod.container_field) {
    pod.container_field->Say(
        "program.framework: None: neither image nor command say which; it decides which variables "
        "the processes get");
  }
  return kNone;
}

void SetProcesses(const std::string& nproc_per_node, const Field& where, Draft& draft) {
  if (const std::optional<int> number = ParseNumber(nproc_per_node, 1, 1024)) {
    draft.processes = number;
    return;
  }
  draft.processes.reset();
  const std::string given = spec::Quoted(nproc_per_node);
  if (nproc_per_node == "cpu" || (nproc_per_node == "auto" && !draft.pod.gpus)) {
    where.Say(given + " processes a replica, there one for each core" +
                  (nproc_per_node == "auto" ? " where there are no GPUs" : "") +
                  ", here one: write processesPerReplica",
              true);
  } else if (nproc_per_node != "auto" && nproc_per_node != "gpu") {
    where.Say(given +
                  " is no number of processes, nor auto, gpu or cpu: one for each device; write "
                  "processesPerReplica",
              true);
  }
}

void StartAsIs(Draft& draft) {
  draft.pod.entrypoint = CommandOf(draft.pod);
  draft.pod.arguments.clear();
}

void StartAsTorchrunDoes(const std::optional<Field>& asked, const std::string& otherwise, Draft& draft) {
  Pod& pod = draft.pod;
  StartAsIs(draft);
  std::vector<std::string> command = pod.entrypoint;
  const Field where = pod.container_field.value_or(draft.where);
  bool script = false;
  const std::optional<std::vector<Word>> words = WordsOfCommand(command, &script);
  const bool torchrun = words && IsTorchrun(*words);
  if (!torchrun && (Mentions(command, "torchrun") || Mentions(command, "torch.distributed."))) {
    where.Say(
        "the command starts torchrun in a script of its own, and each process of Lockstep would start it: "
        "let the "
        "script start what torchrun starts; lockstep import --torchrun says what becomes of its options",
        true);
  }
  draft.processes = 1;
  const std::optional<std::string> processes = asked ? asked->Text() : std::nullopt;
  if (asked && processes && !torchrun) {
    asked->Say(
        "is for torchrun, which the command does not start: one process a replica; else write "
        "processesPerReplica",
        true);
  }
  if (torchrun) {
    std::string error;
    const std::optional<Torchrun> parsed = ParseTorchrun(*words, &error);
    if (!parsed) {
      where.Say("torchrun: " + error + "; the command is left as it is", true);
    } else {
      const std::optional<std::string> variable = TakeVariables(pod);
      for (const OptionNote& note : parsed->notes) where.Say(note.option + ": " + note.what, note.left_out);
      if (parsed->nodes) where.Say("--nnodes: not needed: replicas says it");
      draft.max_restarts = parsed->max_restarts;
      if (parsed->virtual_local_rank) draft.virtual_local_rank = true;
      SetProcesses(parsed->nproc_per_node.value_or(variable.value_or(processes.value_or(otherwise))), where,
                   draft);
      command = script ? CommandOf(parsed->program, {command[0], command[1]}) : CommandOf(parsed->program);
      where.Say("torchrun's place is taken by Lockstep: " +
                (draft.processes
                     ? std::to_string(*draft.processes) + " process" + (*draft.processes == 1 ? "" : "es")
                     : std::string("a process for each device")) +
                " a replica runs " +
                spec::Quoted(parsed->program.size() > 2 ? parsed->program[2].text : parsed->program[0].text));
    }
  }
  pod.entrypoint = std::move(command);
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
