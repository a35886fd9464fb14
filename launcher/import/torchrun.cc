#include "launcher/import/torchrun.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "launcher/spec/quote.h"

namespace lockstep::importer {

namespace {

enum class Kind { kTold, kLeftOut, kProcesses, kNodes, kRestarts, kModule, kNoPython, kVirtualLocalRank };

struct Option {
  std::string_view name;
  bool takes_value;
  Kind kind;
  std::string_view what;
};

constexpr std::string_view kOwnRendezvous =
    "not needed: Lockstep's launchers find one another by themselves, on several machines at the address of "
    "lockstep run --rendezvous";
constexpr std::string_view kOutput =
    "not needed: the output of every rank is kept in a file of the run's folder, and shown with its rank "
    "before";
constexpr std::string_view kNone = "no equivalent; left out";

constexpr std::array kOptions = {
    Option{"--nproc-per-node", true, Kind::kProcesses, ""},
    Option{"--nnodes", true, Kind::kNodes, ""},
    Option{"--max-restarts", true, Kind::kRestarts, ""},
    Option{"-m", false, Kind::kModule, ""},
    Option{"--module", false, Kind::kModule, ""},
    Option{"--no-python", false, Kind::kNoPython, ""},
    Option{
        "--virtual-local-rank", false, Kind::kVirtualLocalRank,
        "devices.visibility: PerProcess: each process sees its own device as number 0; LOCAL_RANK stays its "
        "number on the machine"},
    Option{"--node-rank", true, Kind::kTold,
           "no field: each machine says which it is by lockstep run --replica, and a pod knows it"},
    Option{"--rdzv-backend", true, Kind::kTold, kOwnRendezvous},
    Option{"--rdzv-endpoint", true, Kind::kTold, kOwnRendezvous},
    Option{"--rdzv-id", true, Kind::kTold, "not needed: a job is known by metadata.name and its token"},
    Option{"--rdzv-conf", true, Kind::kLeftOut,
           "no equivalent; left out (how long an elastic job waits for machines is lockstep run "
           "--elastic-wait)"},
    Option{"--standalone", false, Kind::kTold, "not needed: a job of one machine meets on that machine"},
    Option{"--master-addr", true, Kind::kTold, kOwnRendezvous},
    Option{"--master-port", true, Kind::kTold,
           "not needed: MASTER_PORT is a free port, a new one after each restart"},
    Option{"--local-addr", true, Kind::kLeftOut,
           "left out; spec.network.interface names the interface to talk over"},
    Option{"--monitor-interval", true, Kind::kTold, "not needed: the end of a process is noticed at once"},
    Option{"--start-method", true, Kind::kTold, "not needed: every process is a program of its own"},
    Option{"--run-path", false, Kind::kTold, "the script is started by python3, as without"},
    Option{"--event-log-handler", true, Kind::kLeftOut, kNone},
    Option{"--role", true, Kind::kLeftOut, "left out: ROLE_NAME is worker"},
    Option{"--log-dir", true, Kind::kLeftOut,
           "left out: the output of every rank is in the run's folder, lockstep run --run-dir"},
    Option{"-r", true, Kind::kTold, kOutput},
    Option{"--redirects", true, Kind::kTold, kOutput},
    Option{"-t", true, Kind::kTold, kOutput},
    Option{"--tee", true, Kind::kTold, kOutput},
    Option{"--local-ranks-filter", true, Kind::kLeftOut,
           "left out: all ranks are shown; in a cluster kubectl lockstep logs --rank shows one"},
    Option{"--logs-specs", true, Kind::kLeftOut, kNone},
    Option{"--numa-binding", true, Kind::kLeftOut, kNone},
    Option{"--signals-to-handle", true, Kind::kLeftOut,
           "left out: SIGTERM and SIGINT stop the job, SIGTERM is what its processes get"},
    Option{"--use-env", false, Kind::kTold, "not needed: LOCAL_RANK is in the environment"},
};

// argparse takes --rdzv_backend for --rdzv-backend.
std::string Normalised(std::string_view word) {
  std::string name(word.substr(0, word.find('=')));
  if (name.starts_with("--")) std::replace(name.begin() + 2, name.end(), '_', '-');
  return name;
}

const Option* Find(std::string_view name) {
  const auto* const found = std::find_if(kOptions.begin(), kOptions.end(),
                                         [&](const Option& option) { return option.name == name; });
  return found == kOptions.end() ? nullptr : found;
}

// How many words are the command itself; 0: it is another.
size_t LengthOfCommand(const std::vector<Word>& words) {
  if (words.empty()) return 0;
  const std::string_view program = BaseName(words[0].text);
  if (program == "torchrun") return 1;
  if (!program.starts_with("python")) return 0;
  size_t i = 1;
  while (i < words.size() && words[i].text == "-u") ++i;
  if (i + 1 >= words.size() || words[i].text != "-m") return 0;
  const std::string& module = words[i + 1].text;
  return module == "torch.distributed.run" || module == "torch.distributed.launch" ? i + 2 : 0;
}

std::optional<std::pair<int, int>> ParseNodes(std::string_view text) {
  constexpr int kMost = 10'000;
  const size_t colon = text.find(':');
  const std::optional<int> least = ParseNumber(text.substr(0, colon), 1, kMost);
  const std::optional<int> most =
      colon == std::string_view::npos ? least : ParseNumber(text.substr(colon + 1), 1, kMost);
  if (!least || !most || *least > *most) return std::nullopt;
  return std::pair(*least, *most);
}

class Parser {
 public:
  Parser(const std::vector<Word>& words, std::string* error) : words_(words), error_(error) {}

  std::optional<Torchrun> Parse() {
    size_t i = LengthOfCommand(words_);
    const bool legacy = words_[i - 1].text == "torch.distributed.launch";
    for (; i < words_.size() && words_[i].text.starts_with('-') && words_[i].text != "--"; ++i) {
      if (!TakeOption(&i)) return std::nullopt;
    }
    if (i < words_.size() && words_[i].text == "--") ++i;
    if (i == words_.size()) {
      *error_ = "names no script; it stands after the options: torchrun --nproc-per-node 4 train.py";
      return std::nullopt;
    }
    if (legacy && !use_env_) {
      result_.notes.push_back(
          {"torch.distributed.launch",
           "adds --local-rank to the script's arguments, and Lockstep does not: let the script "
           "read LOCAL_RANK from its environment",
           true});
    }
    if (!no_python_) {
      const bool python = BaseName(words_[0].text).starts_with("python");
      Add(python ? words_[0].text : "python3");
      Add("-u");
      if (module_) Add("-m");
    }
    result_.program.insert(result_.program.end(), words_.begin() + static_cast<std::ptrdiff_t>(i),
                           words_.end());
    return std::move(result_);
  }

 private:
  void Add(const std::string& text) { result_.program.push_back({.text = text, .raw = text}); }

  bool Fail(std::string what) {
    *error_ = std::move(what);
    return false;
  }

  // Leaves `*i` at the option's last word.
  bool TakeOption(size_t* i) {
    const std::string& word = words_[*i].text;
    const Option* option = Find(Normalised(word));
    if (option == nullptr) {
      return Fail(spec::Quoted(word) + " is no option of torchrun that is known here; leave it out");
    }
    std::string value;
    if (option->takes_value) {
      const size_t equals = word.find('=');
      if (equals != std::string::npos) {
        value = word.substr(equals + 1);
      } else if (++*i < words_.size()) {
        value = words_[*i].text;
      } else {
        return Fail(word + " has no value");
      }
    }
    return Apply(*option, value);
  }

  bool Apply(const Option& option, const std::string& value) {
    switch (option.kind) {
      case Kind::kProcesses:
        result_.nproc_per_node = value;
        return true;
      case Kind::kNodes:
        result_.nodes = ParseNodes(value);
        if (!result_.nodes) {
          Note(option,
               spec::Quoted(value) + " is no number of machines, and no LEAST:MOST; left out: replicas",
               true);
        }
        return true;
      case Kind::kRestarts:
        result_.max_restarts = ParseNumber(value, 0, 1'000'000);
        if (!result_.max_restarts)
          Note(option, spec::Quoted(value) + " is no number of restarts; left out", true);
        return true;
      case Kind::kModule:
        module_ = true;
        return true;
      case Kind::kNoPython:
        no_python_ = true;
        return true;
      case Kind::kVirtualLocalRank:
        result_.virtual_local_rank = true;
        break;
      case Kind::kTold:
      case Kind::kLeftOut:
        break;
    }
    use_env_ = use_env_ || option.name == "--use-env";
    result_.notes.push_back({std::string(option.name) + (value.empty() ? "" : " " + value),
                             std::string(option.what), option.kind == Kind::kLeftOut});
    return true;
  }

  void Note(const Option& option, std::string what, bool left_out) {
    result_.notes.push_back({std::string(option.name), std::move(what), left_out});
  }

  const std::vector<Word>& words_;
  std::string* error_;
  Torchrun result_;
  bool module_ = false;
  bool no_python_ = false;
  bool use_env_ = false;
};

}  // namespace

bool IsTorchrun(const std::vector<Word>& words) { return LengthOfCommand(words) > 0; }

std::optional<Torchrun> ParseTorchrun(const std::vector<Word>& words, std::string* error) {
  return Parser(words, error).Parse();
}

}  // namespace lockstep::importer
