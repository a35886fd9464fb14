#include <algorithm>
#include <array>
#include <utility>

#include "common/lower_case.h"
#include "launcher/import/command_line.h"
#include "launcher/import/translation.h"
#include "launcher/spec/enums.h"
#include "launcher/spec/quote.h"

// How a pod's program is started, and as what.
namespace lockstep::importer {

namespace {

// The words of a command, of a script that is one command, or none: `script` is
// then whether it is a script.
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
                                          : " of env: torchrun's option; left "
                                            "out, give it to torchrun"),
                               !known);
    }
    return true;
  });
  return processes;
}

}  // namespace

spec::Framework GuessFramework(const Pod& pod) {
  using enum spec::Framework;
  static constexpr std::array<std::pair<std::string_view, spec::Framework>, 6> kWords = {
      {{"horovod", kHorovod},
       {"torch", kPyTorch},
       {"tensorflow", kTensorFlow},
       {"tf-", kTensorFlow},
       {"keras", kTensorFlow},
       {"jax", kJax}}};
  std::string text = LowerCase(pod.image);
  for (const auto* words : {&pod.entrypoint, &pod.arguments}) {
    for (const std::string& word : *words) text += "\n" + LowerCase(word);
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
        "program.framework: None: neither image nor "
        "command say which; it decides which variables "
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
                  " is no number of processes, nor auto, gpu or cpu: one "
                  "for each device; write "
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
        "the command starts torchrun in a script of its own, and each "
        "process of Lockstep would start it: "
        "let the "
        "script start what torchrun starts; lockstep import --torchrun "
        "says what becomes of its options",
        true);
  }
  draft.processes = 1;
  const std::optional<std::string> processes = asked ? asked->Text() : std::nullopt;
  if (asked && processes && !torchrun) {
    asked->Say(
        "is for torchrun, which the command does not start: one process "
        "a replica; else write "
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

}  // namespace lockstep::importer
