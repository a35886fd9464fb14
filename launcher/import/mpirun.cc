#include "launcher/import/mpirun.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "launcher/spec/quote.h"

namespace lockstep::importer {

namespace {

enum class Kind { kTold, kLeftOut, kProcesses, kPerNode, kExport, kGenv, kFolder };

struct Option {
  std::string_view name;  // with one dash; two are the same
  int values;
  Kind kind;
  std::string_view what;
};

constexpr std::string_view kHosts = "not needed: the job's replicas are its machines";
constexpr std::string_view kBinding =
    "left out: Lockstep gives each process its devices and its share of the cores";
constexpr std::string_view kNone = "no equivalent; left out";

constexpr std::array kOptions = {
    Option{"-n", 1, Kind::kProcesses, ""},
    Option{"-np", 1, Kind::kProcesses, ""},
    Option{"-c", 1, Kind::kProcesses, ""},
    Option{"-num-proc", 1, Kind::kProcesses, ""},
    Option{"-N", 1, Kind::kPerNode, ""},
    Option{"-npernode", 1, Kind::kPerNode, ""},
    Option{"-ppn", 1, Kind::kPerNode, ""},
    Option{"-perhost", 1, Kind::kPerNode, ""},
    Option{"-x", 1, Kind::kExport, ""},
    Option{"-genv", 2, Kind::kGenv, ""},
    Option{"-env", 2, Kind::kGenv, ""},
    Option{"-wdir", 1, Kind::kFolder, ""},
    Option{"-wd", 1, Kind::kFolder, ""},
    Option{"-allow-run-as-root", 0, Kind::kTold, "not needed: Lockstep starts whom its pod or user is"},
    Option{"-H", 1, Kind::kTold, kHosts},
    Option{"-host", 1, Kind::kTold, kHosts},
    Option{"-hosts", 1, Kind::kTold, kHosts},
    Option{"-hostfile", 1, Kind::kTold, kHosts},
    Option{"-machinefile", 1, Kind::kTold, kHosts},
    Option{"-f", 1, Kind::kTold, kHosts},
    Option{"-p", 1, Kind::kTold, "not needed: no ssh is used"},
    Option{"-ssh-port", 1, Kind::kTold, "not needed: no ssh is used"},
    Option{"-tag-output", 0, Kind::kTold, "not needed: every line is shown with its rank before"},
    Option{"-prefix-output-with-timestamp", 0, Kind::kLeftOut, kNone},
    Option{"-output-filename", 1, Kind::kLeftOut,
           "left out: the output of every rank is in the run's folder, lockstep run --run-dir"},
    Option{"-bind-to", 1, Kind::kLeftOut, kBinding},
    Option{"-map-by", 1, Kind::kLeftOut, kBinding},
    Option{"-rank-by", 1, Kind::kLeftOut, kBinding},
    Option{"-bind-to-none", 0, Kind::kLeftOut, kBinding},
    Option{"-bynode", 0, Kind::kLeftOut, kBinding},
    Option{"-oversubscribe", 0, Kind::kLeftOut, kBinding},
    Option{"-report-bindings", 0, Kind::kTold, "lockstep run --dry-run prints what each process gets"},
    Option{"-display-map", 0, Kind::kTold, "lockstep run --dry-run prints what each process gets"},
    Option{"-mca", 2, Kind::kLeftOut, "left out: a setting of Open MPI's"},
    Option{"-gmca", 2, Kind::kLeftOut, "left out: a setting of Open MPI's"},
    Option{"-prefix", 1, Kind::kLeftOut, "left out: a setting of Open MPI's"},
    Option{"-q", 0, Kind::kLeftOut, kNone},
    Option{"-v", 0, Kind::kLeftOut, kNone},
    Option{"-verbose", 0, Kind::kLeftOut, kNone},
    Option{"-min-np", 1, Kind::kLeftOut,
           "left out; runPolicy.minReplicas says with how many machines a job goes on"},
    Option{"-max-np", 1, Kind::kLeftOut, "left out; replicas is the most"},
    Option{"-host-discovery-script", 1, Kind::kTold, kHosts},
    Option{"-gloo", 0, Kind::kLeftOut, kNone},
    Option{"-mpi", 0, Kind::kLeftOut, kNone},
};

const Option* Find(std::string_view word) {
  if (word.starts_with("--")) word.remove_prefix(1);
  const auto* const found = std::find_if(kOptions.begin(), kOptions.end(),
                                         [&](const Option& option) { return option.name == word; });
  return found == kOptions.end() ? nullptr : found;
}

void Export(const Option& option, std::string_view variable, Mpirun& result) {
  const size_t equals = variable.find('=');
  const std::string name(variable.substr(0, equals));
  if (equals == std::string_view::npos) {
    result.notes.push_back({std::string(option.name) + " " + name,
                            "not needed: a process has the whole environment of its pod"});
  } else {
    result.environment.emplace_back(name, variable.substr(equals + 1));
  }
}

void Apply(const Option& option, const std::vector<std::string>& values, Mpirun& result) {
  constexpr int kMost = 1'000'000;
  switch (option.kind) {
    case Kind::kProcesses:
    case Kind::kPerNode: {
      std::optional<int>& number =
          option.kind == Kind::kProcesses ? result.processes : result.processes_per_node;
      number = ParseNumber(values[0], 1, kMost);
      if (number) return;
      result.notes.push_back({std::string(option.name),
                              spec::Quoted(values[0]) + " is no number; left out: give processesPerReplica",
                              true});
      return;
    }
    case Kind::kExport:
      return Export(option, values[0], result);
    case Kind::kGenv:
      result.environment.emplace_back(values[0], values[1]);
      return;
    case Kind::kFolder:
      result.working_directory = values[0];
      return;
    case Kind::kTold:
    case Kind::kLeftOut:
      break;
  }
  std::string name(option.name);
  for (const std::string& value : values) name += " " + value;
  result.notes.push_back({std::move(name), std::string(option.what), option.kind == Kind::kLeftOut});
}

}  // namespace

bool IsMpirun(const std::vector<Word>& words) {
  if (words.empty()) return false;
  const std::string_view program = BaseName(words[0].text);
  return program == "mpirun" || program == "mpiexec" || program == "mpiexec.hydra" || program == "orterun" ||
         program == "horovodrun";
}

std::optional<Mpirun> ParseMpirun(const std::vector<Word>& words, std::string* error) {
  Mpirun result;
  result.horovod = BaseName(words[0].text) == "horovodrun";
  size_t i = 1;
  for (; i < words.size() && words[i].text.starts_with('-'); ++i) {
    const std::string& word = words[i].text;
    const Option* option = Find(word.starts_with("--") ? word.substr(0, word.find('=')) : word);
    if (option == nullptr) {
      *error = spec::Quoted(word) + " is no option of " + words[0].text + " that is known here";
      return std::nullopt;
    }
    std::vector<std::string> values;
    if (word.starts_with("--") && word.find('=') != std::string::npos) {
      values.push_back(word.substr(word.find('=') + 1));
    }
    while (values.size() < static_cast<size_t>(option->values) && i + 1 < words.size())
      values.push_back(words[++i].text);
    if (values.size() != static_cast<size_t>(option->values)) {
      *error = word + " has no value";
      return std::nullopt;
    }
    Apply(*option, values, result);
  }
  if (i == words.size()) {
    *error = "names no program";
    return std::nullopt;
  }
  result.program.assign(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
  return result;
}

}  // namespace lockstep::importer
