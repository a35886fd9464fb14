#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::importer {

// A word of a command line.
struct Word {
  std::string text;      // without its quotes; variables as they are written
  std::string raw;       // as it is written
  bool expands = false;  // a shell would put something else here: a variable, files
};

// The words of one simple command as a POSIX shell reads them. Empty where it is more than that: several
// commands, pipes, redirections, substitutions, an open quote.
std::optional<std::vector<Word>> SplitCommand(std::string_view text);

// Words that stand for themselves.
std::vector<Word> WordsOf(const std::vector<std::string>& texts);

// `words` as a program and its arguments; behind `shell` ({"sh", "-c"}) where one of them is for it to
// expand.
std::vector<std::string> CommandOf(const std::vector<Word>& words,
                                   const std::vector<std::string>& shell = {"sh", "-c"});

// "NAME=VALUE" with a name that a variable may have.
bool IsAssignment(std::string_view text);

// The last part of a path: "torchrun" of "/opt/conda/bin/torchrun".
std::string_view BaseName(std::string_view path);

// A whole number from `min` to `max`.
std::optional<int> ParseNumber(std::string_view text, int min, int max);

}  // namespace lockstep::importer
