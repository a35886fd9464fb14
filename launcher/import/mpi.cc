#include "launcher/import/mpi.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "common/contract/environment.h"
#include "launcher/import/command_line.h"
#include "launcher/import/mpirun.h"
#include "launcher/spec/quote.h"

namespace lockstep::importer {

namespace {

bool IsSshd(const Pod& pod) {
  for (const auto* words : {&pod.entrypoint, &pod.arguments}) {
    for (const std::string& word : *words) {
      if (word.find("sshd") != std::string::npos) return true;
    }
  }
  return false;
}

// Whether `whole` has every field of `part`, alike.
bool IsPartOf(const Json& part, const Json& whole) {
  for (const auto& [key, value] : part.items()) {
    const auto same = whole.find(key);
    if (same == whole.end() || *same != value) return false;
  }
  return true;
}

bool MentionsHorovod(const Pod& pod) {
  std::string text = pod.image;
  for (const std::string& word : pod.entrypoint) text += " " + word;
  return text.find("horovod") != std::string::npos;
}

std::vector<std::string> ShellOf(const std::vector<std::string>& command) {
  const std::string_view program = command.empty() ? std::string_view() : BaseName(command[0]);
  const bool shell =
      (program == "sh" || program == "bash") && command.size() == 3 && command[1].ends_with('c');
  return shell ? std::vector<std::string>{command[0], command[1]} : std::vector<std::string>{};
}

void SetVariable(const std::string& name, const std::string& value, const Field& where, Pod& pod) {
  if (contract::IsReserved(name)) {
    where.Say(name + ": Lockstep sets it itself");
    return;
  }
  std::erase_if(pod.environment, [&](const auto& variable) { return variable.first == name; });
  pod.environment.emplace_back(name, value);
}

void Apply(const Mpirun& mpirun, int slots, const Field& where, Draft& workers) {
  for (const OptionNote& note : mpirun.notes) where.Say(note.option + ": " + note.what, note.left_out);
  for (const auto& [name, value] : mpirun.environment) SetVariable(name, value, where, workers.pod);
  if (!mpirun.working_directory.empty()) workers.pod.working_directory = mpirun.working_directory;
  workers.processes = mpirun.processes_per_node.value_or(slots);
  const int all = *workers.processes * workers.replicas;
  if (mpirun.processes && *mpirun.processes < all && *mpirun.processes % workers.replicas == 0) {
    workers.processes = *mpirun.processes / workers.replicas;
    where.Say("-np " + std::to_string(*mpirun.processes) + " in " + std::to_string(all) +
              " slots: " + std::to_string(*workers.processes) + " on each replica");
  } else if (mpirun.processes && *mpirun.processes != all) {
    where.Say("-np " + std::to_string(*mpirun.processes) + ": here " + std::to_string(workers.replicas) +
                  " replicas with " + std::to_string(*workers.processes) +
                  " processes each; write replicas and processesPerReplica",
              true);
  }
}

}  // namespace

spec::Framework StartAsMpirunDoes(int slots, Draft& draft) {
  Pod& pod = draft.pod;
  StartAsIs(draft);
  const Field where = pod.container_field.value_or(draft.where);
  const std::vector<std::string> shell = ShellOf(pod.entrypoint);
  const std::optional<std::vector<Word>> words =
      shell.empty() ? WordsOf(pod.entrypoint) : SplitCommand(pod.entrypoint[2]);
  draft.processes = slots;
  bool horovod = MentionsHorovod(pod);
  std::string error = "the command is no mpirun, or one in a longer script";
  const std::optional<Mpirun> mpirun =
      words && IsMpirun(*words) ? ParseMpirun(*words, &error) : std::optional<Mpirun>();
  if (mpirun) {
    horovod = horovod || mpirun->horovod;
    Apply(*mpirun, slots, where, draft);
    pod.entrypoint = shell.empty() ? CommandOf(mpirun->program) : CommandOf(mpirun->program, shell);
    where.Say("mpirun's place is taken by Lockstep, which starts " + spec::Quoted(mpirun->program[0].text) +
              " in the workers");
  } else {
    where.Say(error +
                  ": every process of the workers would run it; write the program that each is to run into "
                  "program.command",
              true);
  }
  return horovod ? spec::Framework::kHorovod : spec::Framework::kMpi;
}

void TakeLauncher(const Draft& launcher, Draft& workers) {
  const Pod& from = launcher.pod;
  Pod& to = workers.pod;
  const Field where = from.container_field.value_or(launcher.where);
  for (const std::optional<Field>& field : {to.command_field, to.args_field}) {
    if (!field) continue;
    if (IsSshd(to)) {
      field->Say("not needed: no mpirun comes by ssh, Lockstep's agent starts the processes");
    } else {
      field->Say("left out: the workers run what the launcher's mpirun starts", true);
    }
  }
  to.entrypoint = from.entrypoint;
  to.arguments = from.arguments;
  to.container_field = where;
  for (const auto& [name, value] : from.environment) SetVariable(name, value, where, to);
  for (const Json& variable : from.pod_environment) to.pod_environment.push_back(variable);
  if (to.working_directory.empty()) to.working_directory = from.working_directory;
  Json container = from.container;
  container.erase("resources");
  container.erase("imagePullPolicy");
  const bool same = IsPartOf(container, to.container) && IsPartOf(from.spec, to.spec) &&
                    IsPartOf(from.metadata, to.metadata) && from.other_containers.empty() &&
                    from.image == to.image;
  launcher.where.Say(
      same ? "there is no launcher's pod: its command and env are the workers', its resources are not "
             "needed"
           : "there is no launcher's pod: its command and env are the workers', and the rest of its "
             "template, which is not as theirs, is left out",
      !same);
}

spec::Framework FoldLauncher(const Draft& launcher, int slots, Draft& workers) {
  TakeLauncher(launcher, workers);
  return StartAsMpirunDoes(slots, workers);
}

}  // namespace lockstep::importer
