#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/import/command_line.h"

// torchrun's command line: torchrun, python -m torch.distributed.run, python -m torch.distributed.launch. The
// options are those of torch/distributed/run.py.
namespace lockstep::importer {

// Something to say of an option.
struct OptionNote {
  std::string option;  // "--rdzv-backend"
  std::string what;
  bool left_out = false;
};

struct Torchrun {
  std::vector<Word> program;                  // what each process runs, its interpreter included
  std::optional<std::string> nproc_per_node;  // "4", "auto", "gpu", "cpu"; empty: not given
  std::optional<std::pair<int, int>> nodes;   // the least and the most
  std::optional<int> max_restarts;
  bool virtual_local_rank = false;
  std::vector<OptionNote> notes;  // on every other option that was given
};

// Whether the words begin with one of those commands.
bool IsTorchrun(const std::vector<Word>& words);

// `words` are torchrun's. Empty where they cannot be read: `error` says why.
std::optional<Torchrun> ParseTorchrun(const std::vector<Word>& words, std::string* error);

}  // namespace lockstep::importer
