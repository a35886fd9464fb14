#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/import/command_line.h"
#include "launcher/import/torchrun.h"

// The command lines of mpirun, mpiexec and horovodrun: of Open MPI, of Intel MPI and MPICH where those
// differ.
namespace lockstep::importer {

struct Mpirun {
  bool horovod = false;
  std::vector<Word> program;
  std::optional<int> processes;  // of all machines
  std::optional<int> processes_per_node;
  std::vector<std::pair<std::string, std::string>> environment;  // with a value
  std::string working_directory;
  std::vector<OptionNote> notes;  // on every other option that was given
};

bool IsMpirun(const std::vector<Word>& words);

// `words` are mpirun's. Empty where they cannot be read: `error` says why.
std::optional<Mpirun> ParseMpirun(const std::vector<Word>& words, std::string* error);

}  // namespace lockstep::importer
