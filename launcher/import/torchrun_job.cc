#include <algorithm>
#include <string>
#include <utility>

#include "common/contract/environment.h"
#include "launcher/import/import.h"
#include "launcher/import/job_name.h"
#include "launcher/import/torchrun.h"
#include "launcher/import/write.h"
#include "launcher/spec/quote.h"

// `lockstep import --torchrun`.
namespace lockstep::importer {

namespace {

constexpr char kHere[] = "torchrun";

class CommandReader {
 public:
  Imported Read(std::string_view command_line) {
    std::optional<std::vector<Word>> words = SplitCommand(command_line);
    if (!words || words->empty()) {
      return Fail(words
                      ? "is empty; write the command: lockstep import --torchrun 'torchrun train.py'"
                      : "is more than one simple command; give torchrun's alone, without pipes, && and $( )");
    }
    while (!words->empty() && IsAssignment(words->front().text)) {
      TakeVariable(words->front());
      words->erase(words->begin());
    }
    if (!IsTorchrun(*words)) {
      return Fail(
          "is no torchrun; it begins with torchrun, or with python3 -m torch.distributed.run (or .launch)");
    }
    std::string error;
    const std::optional<Torchrun> torchrun = ParseTorchrun(*words, &error);
    if (!torchrun) return Fail(error);
    SetJob(*torchrun);
    return Finish();
  }

 private:
  Imported Fail(std::string what) {
    result_.errors.push_back({kHere, 0, "", std::move(what)});
    return std::move(result_);
  }

  void Say(std::string option, std::string what, bool left_out = false) {
    result_.notes.push_back({kHere, 0, std::move(option), std::move(what), left_out});
  }

  void TakeVariable(const Word& word) {
    const size_t equals = word.text.find('=');
    const std::string name = word.text.substr(0, equals);
    const std::string value = word.text.substr(equals + 1);
    if (name == "CUDA_VISIBLE_DEVICES" && !word.expands && !value.empty()) {
      for (size_t begin = 0; begin <= value.size();) {
        const size_t end = std::min(value.find(',', begin), value.size());
        role_.devices.visible.push_back(value.substr(begin, end - begin));
        begin = end + 1;
      }
    } else if (contract::IsReserved(name)) {
      Say(name, "Lockstep sets it itself");
    } else if (word.expands) {
      Say(name, "left out: nobody fills in " + spec::Quoted(value) + "; set it where lockstep run is started",
          true);
    } else {
      program_.environment.emplace_back(name, value);
    }
  }

  void SetProcesses(const std::string& given) {
    if (const std::optional<int> number = ParseNumber(given, 1, 1024)) {
      role_.processes_per_replica = *number;
    } else if (given == "gpu") {
      role_.devices.type = spec::DeviceType::kGpu;
    } else if (given == "cpu") {
      role_.devices.type = spec::DeviceType::kCpu;
      Say("--nproc-per-node",
          "cpu is a process for each core there, here one process: write processesPerReplica", true);
    } else if (given == "auto") {
      Say("--nproc-per-node",
          "auto is a process for each GPU, and without GPUs there for each core, here one");
    } else {
      Say("--nproc-per-node",
          spec::Quoted(given) + " is no number of processes, nor auto, gpu or cpu: write processesPerReplica",
          true);
    }
  }

  void SetJob(const Torchrun& torchrun) {
    for (const OptionNote& note : torchrun.notes) Say(note.option, note.what, note.left_out);
    SetProcesses(torchrun.nproc_per_node.value_or("1"));
    if (torchrun.nodes) {
      role_.replicas = torchrun.nodes->second;
      if (torchrun.nodes->first < torchrun.nodes->second)
        job_.run_policy.min_replicas = torchrun.nodes->first;
    }
    if (role_.replicas > 1) {
      Say("--nnodes",
          "replicas: on each machine lockstep run JOB.yaml --replica N --rendezvous HOST:29400 --token-file "
          "FILE, or in a cluster a pod each");
    }
    if (torchrun.virtual_local_rank) role_.devices.visibility = spec::Visibility::kPerProcess;
    job_.run_policy.max_restarts = torchrun.max_restarts.value_or(0);
    program_.framework = spec::Framework::kPyTorch;
    program_.command = CommandOf(torchrun.program);
    SetName(torchrun);
  }

  // Of the script: train.py is train.
  void SetName(const Torchrun& torchrun) {
    std::string name;
    for (const Word& word : torchrun.program) {
      if (word.text.starts_with('-') || BaseName(word.text).starts_with("python")) continue;
      std::string_view script = BaseName(word.text);
      if (script.ends_with(".py") || script.ends_with(".sh")) script.remove_suffix(3);
      name = script;
      break;
    }
    job_.name = JobName(name);
  }

  Imported Finish() {
    job_.program = std::move(program_);
    job_.roles.push_back(std::move(role_));
    const Written written = WriteJob(job_);
    result_.manifests = written.yaml;
    result_.jobs = 1;
    for (const Remark& remark : written.not_built)
      Say(remark.path, remark.what + ": the job is refused when it is run", true);
    for (const Remark& remark : written.broken)
      result_.errors.push_back({kHere, 0, remark.path, remark.what});
    return std::move(result_);
  }

  Imported result_;
  spec::TrainingJob job_;
  spec::Role role_;
  spec::Program program_;
};

}  // namespace

Imported ImportTorchrun(std::string_view command_line) { return CommandReader().Read(command_line); }

}  // namespace lockstep::importer
