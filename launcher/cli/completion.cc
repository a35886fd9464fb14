#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/contract/exit_codes.h"
#include "launcher/cli/commands.h"
#include "launcher/job/run_folder.h"

// Completion of the command line. What a shell sources asks `lockstep complete` each time, so that it knows
// the commands of the program that is there, and the runs.
namespace lockstep::cli {

namespace {

// A line a candidate: the word, a tab, what it is.
constexpr char kBash[] = R"(# lockstep's completion for bash: source <(lockstep completion bash)
_lockstep() {
  local IFS=$'\n'
  COMPREPLY=($(lockstep complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1))
}
complete -o default -F _lockstep lockstep
)";

constexpr char kZsh[] = R"(#compdef lockstep
# lockstep's completion for zsh: source <(lockstep completion zsh), or as _lockstep in a folder of $fpath
_lockstep() {
  local -a candidates
  candidates=("${(@f)$(lockstep complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n $candidates[1] ]]; then
    candidates=("${(@)candidates//:/\\:}")
    candidates=("${(@)candidates//$'\t'/:}")
    _describe lockstep candidates
  else
    _files
  fi
}
if [[ $funcstack[1] == _lockstep ]]; then
  _lockstep
else
  compdef _lockstep lockstep
fi
)";

constexpr char kFish[] = R"(# lockstep's completion for fish: lockstep completion fish | source
complete -c lockstep -a '(lockstep complete -- (commandline -opc)[2..-1] (commandline -ct))'
)";

struct Candidate {
  std::string word, what;
};

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// What stands on a command line before the word to be completed.
struct Before {
  const CLI::App* command;               // the innermost one
  const CLI::Option* waiting = nullptr;  // for its value
  size_t arguments = 0;                  // of the command, that are no options
};

Before Read(const CLI::App& app, std::span<const std::string> words) {
  Before before{&app};
  for (const std::string& word : words) {
    if (word == "=") continue;  // bash takes --option=value for three words
    if (std::exchange(before.waiting, nullptr) != nullptr) continue;
    if (word.starts_with('-')) {
      const CLI::Option* option = before.command->get_option_no_throw(word);
      if (option != nullptr && TakesValue(*option)) before.waiting = option;
      continue;
    }
    const auto inner =
        before.command->get_subcommands([&](const CLI::App* one) { return one->get_name() == word; });
    if (inner.empty()) {
      ++before.arguments;
    } else {
      before = {inner.front()};
    }
  }
  return before;
}

// An option with few values says them in its type: "TEXT:{text,json}".
std::vector<Candidate> ValuesOf(const CLI::Option& option) {
  std::vector<Candidate> values;
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{');
  const size_t end = type.find('}', begin);
  if (begin == std::string::npos || end == std::string::npos) return values;
  for (const std::string& word : CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',')) {
    values.push_back({word, ""});
  }
  return values;
}

// The commands, or what an argument that is none may be: a run. Anything else is a file, which the shell
// knows.
std::vector<Candidate> Arguments(const Before& before) {
  std::vector<Candidate> all;
  for (const CLI::App* command :
       before.command->get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); })) {
    all.push_back({command->get_name(), command->get_description()});
  }
  const CLI::Option* const run = before.command->get_option_no_throw("RUN");
  if (run != nullptr && before.arguments < static_cast<size_t>(run->get_items_expected_max())) {
    const auto folders = job::NewestRuns("", std::numeric_limits<size_t>::max());
    if (!folders.ok()) return all;
    for (const std::filesystem::path folder : *folders) {
      all.push_back({folder.parent_path().filename() / folder.filename(), ""});
    }
  }
  return all;
}

std::vector<Candidate> Options(const CLI::App& command) {
  std::vector<Candidate> all;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames())
      all.push_back({"--" + name, option->get_description()});
  }
  return all;
}

std::vector<Candidate> Complete(const CLI::App& app, std::span<const std::string> words) {
  std::string last = words.empty() ? "" : words.back();
  if (last == "=") last.clear();
  const Before before = Read(app, words.first(words.empty() ? 0 : words.size() - 1));
  std::vector<Candidate> all = before.waiting != nullptr ? ValuesOf(*before.waiting)
                               : last.starts_with('-')   ? Options(*before.command)
                                                         : Arguments(before);
  std::erase_if(all, [&](const Candidate& one) { return !one.word.starts_with(last); });
  return all;
}

}  // namespace

void AddCompletion(CLI::App& app, Action& action) {
  auto* scripts =
      app.add_subcommand("completion", "Print what makes a shell complete lockstep's command line");
  scripts->require_subcommand(1);
  for (const auto& [shell, script] :
       {std::pair("bash", kBash), std::pair("zsh", kZsh), std::pair("fish", kFish)}) {
    scripts->add_subcommand(shell, "for " + std::string(shell))->callback([&action, script = script] {
      action = [script] {
        std::cout << script;
        return contract::kExitDone;
      };
    });
  }

  auto* command = app.add_subcommand("complete", "What may be typed next")->group("");
  auto words = std::make_shared<std::vector<std::string>>();
  command->add_option("WORD", *words, "what follows \"lockstep\", the last one unfinished");
  command->callback([&action, &app, words] {
    action = [&app, words] {
      for (const Candidate& one : Complete(app, *words)) std::cout << one.word << '\t' << one.what << '\n';
      return contract::kExitDone;
    };
  });
}

}  // namespace lockstep::cli
