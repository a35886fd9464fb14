#include "launcher/placement/environment_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/unique_fd.h"
#include "launcher/placement/text_files.h"
#include "launcher/spec/roles.h"

namespace lockstep::placement {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool IsName(std::string_view text) {
  const auto begins = [](unsigned char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  const auto goes_on = [&](unsigned char c) { return begins(c) || (c >= '0' && c <= '9'); };
  return !text.empty() && begins(static_cast<unsigned char>(text.front())) &&
         std::all_of(text.begin(), text.end(), goes_on);
}

Result<std::string> ReadRegularFile(const std::string& path) {
  const std::string what = "spec.program.envFiles: " + path;
  // (A FIFO's open would wait for whoever writes to it.)
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return Status::FromErrno(errno, what);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return Status::FromErrno(errno, what);
  if (!S_ISREG(facts.st_mode)) return InvalidArgument(what + " is not a regular file");
  std::string text(kMaxEnvironmentFileBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = ::read(file.get(), text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::FromErrno(errno, what);
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  if (size > kMaxEnvironmentFileBytes) {
    return InvalidArgument(what + " has more than " + std::to_string(kMaxEnvironmentFileBytes / 1024) +
                           " KiB");
  }
  text.resize(size);
  return text;
}

}  // namespace

Result<std::vector<FileVariable>> ParseEnvironmentFile(const std::string& file, std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<FileVariable> variables;
  std::map<std::string_view, int> lines;  // where a variable was set
  int number = 0;
  for (std::string_view line : Split(text, '\n')) {
    ++number;
    const auto wrong = [&](const std::string& what) {
      return InvalidArgument(file + ":" + std::to_string(number) + ": " + what);
    };
    if (line.ends_with('\r')) line.remove_suffix(1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.empty() || line.front() == '#') continue;
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) return wrong("there is no =; a line is NAME=VALUE or a # comment");
    const std::string_view name = line.substr(0, equals);
    if (!IsName(name)) {
      return wrong("what is before the = is not a variable's name (letters, digits and _, no digit first)");
    }
    const std::string_view value = line.substr(equals + 1);
    if (value.find('\0') != std::string_view::npos) {
      return wrong("the value of " + std::string(name) + " holds a zero byte");
    }
    const auto [before, is_new] = lines.emplace(name, number);
    if (!is_new) {
      return wrong(std::string(name) + " is set in line " + std::to_string(before->second) +
                   " already; keep one of them");
    }
    variables.push_back(
        {.name = std::string(name), .value = std::string(value), .file = file, .line = number});
  }
  return variables;
}

Result<EnvironmentFiles> ReadEnvironmentFiles(const spec::TrainingJob& job, const std::string& role) {
  EnvironmentFiles files;
  for (const spec::Role& each : job.roles) {
    const spec::Program* const program = spec::ProgramOf(job, each);
    if (program == nullptr || (!role.empty() && each.name != role)) continue;
    for (const std::string& path : program->environment_files) {
      if (files.contains(path)) continue;
      const auto text = ReadRegularFile(path);
      LOCKSTEP_RETURN_IF_ERROR(text.status());
      auto variables = ParseEnvironmentFile(path, *text);
      LOCKSTEP_RETURN_IF_ERROR(variables.status());
      files.emplace(path, std::move(*variables));
    }
  }
  return files;
}

std::vector<FileVariable> VariablesOf(const spec::Program& program, const EnvironmentFiles& files) {
  std::vector<FileVariable> all;
  for (const std::string& path : program.environment_files) {
    const auto file = files.find(path);
    if (file == files.end()) continue;
    for (const FileVariable& variable : file->second) {
      std::erase_if(all, [&](const FileVariable& before) { return before.name == variable.name; });
      all.push_back(variable);
    }
  }
  return all;
}

}  // namespace lockstep::placement
