#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "launcher/spec/training_job.h"

// The files of spec.program.envFiles: a variable a line, as docker's --env-file has them. Their values are
// secrets: no message has one, nor anything else of a line that could not be read.
namespace lockstep::placement {

inline constexpr size_t kMaxEnvironmentFileBytes = 256 * 1024;

struct FileVariable {
  std::string name;
  std::string value;
  std::string file;  // as the manifest names it
  int line = 0;      // from 1
  bool operator==(const FileVariable&) const = default;
};

// By the path that the manifest gives.
using EnvironmentFiles = std::map<std::string, std::vector<FileVariable>>;

// NAME=VALUE; the value is all that follows, to the end of the line: no quotes, no escapes, nothing is filled
// in. Lines with nothing but blanks and those that begin with # count for nothing. kInvalidArgument names the
// file and the line.
Result<std::vector<FileVariable>> ParseEnvironmentFile(const std::string& file, std::string_view text);

// Those that the programs of `role` name, or of all roles where it is empty. A path that is not absolute is
// one below the folder that the launcher was started in. Never waits: what is not a regular file is refused.
Result<EnvironmentFiles> ReadEnvironmentFiles(const spec::TrainingJob& job, const std::string& role);

// What a program gets of its files, in their order; the last one to set a variable counts.
std::vector<FileVariable> VariablesOf(const spec::Program& program, const EnvironmentFiles& files);

}  // namespace lockstep::placement
