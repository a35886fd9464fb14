#include "launcher/process/exec_failure.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "common/unique_fd.h"

namespace lockstep::process {

namespace {

constexpr char kDefaultPath[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// The interpreter that the first line of a script names; empty when it names none.
std::string InterpreterOf(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return {};
  std::array<char, 256> buffer;
  const ssize_t size = ::read(fd.get(), buffer.data(), buffer.size());
  std::string_view text(buffer.data(), size > 0 ? static_cast<size_t>(size) : 0);
  if (!text.starts_with("#!")) return {};
  text = text.substr(
      2, text.find('\n') == std::string_view::npos ? std::string_view::npos : text.find('\n') - 2);
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  text.remove_prefix(begin);
  return std::string(text.substr(0, text.find_first_of(" \t")));
}

std::string Absolute(const std::string& path, const std::string& working_directory) {
  return path.starts_with('/') || working_directory.empty() ? path : working_directory + "/" + path;
}

Status NotExecuted(const Launch& launch, int error, const std::string& tried) {
  const std::string& program = launch.command.front();
  const bool searched = program.find('/') == std::string::npos;
  const std::string file = Absolute(tried, launch.working_directory);
  struct stat info;
  const bool exists = ::stat(file.c_str(), &info) == 0;
  if ((error == ENOENT || error == ENOTDIR) && !exists) {
    if (searched) return NotFound(program + ": command not found in PATH (" + SearchPath(launch) + ")");
    return NotFound(program + ": no such file" +
                    (launch.working_directory.empty() || program.starts_with('/')
                         ? ""
                         : " in the working directory " + launch.working_directory));
  }
  if (error == ENOENT) {
    const std::string interpreter = InterpreterOf(file);
    if (!interpreter.empty()) {
      const bool carriage_return = interpreter.ends_with('\r');
      return InvalidArgument(file + ": bad interpreter: " +
                             (carriage_return ? interpreter.substr(0, interpreter.size() - 1) +
                                                    " with a carriage return (the file has DOS line ends)"
                                              : interpreter + " (in its first line) does not exist"));
    }
    return InvalidArgument(file + ": can't be executed: the dynamic loader that it asks for does not exist");
  }
  if (error == EACCES) {
    if (exists && S_ISDIR(info.st_mode)) return PermissionDenied(file + ": is a directory, not a program");
    return PermissionDenied(file + ": not executable (permission denied)");
  }
  if (error == ENOEXEC) {
    return InvalidArgument(
        file + ": not executable: neither a program for this machine nor a script that begins with #!");
  }
  if (error == ENOMEM || error == EAGAIN || error == EMFILE || error == ENFILE) {
    return Status::FromErrno(error, "execute " + file);
  }
  return InvalidArgument(file + ": can't be executed: " + std::strerror(error));
}

}  // namespace

std::string SearchPath(const Launch& launch) {
  for (const auto& [name, value] : launch.environment) {
    if (name == "PATH") return value;
  }
  return kDefaultPath;
}

Status ExecFailure(const Launch& launch, const ExecRequest& request,
                   const std::vector<std::string>& candidates) {
  switch (request.failed) {
    case ExecRequest::Step::kNone:
      break;
    case ExecRequest::Step::kWorkingDirectory:
      return InvalidArgument("working directory " + launch.working_directory + ": " +
                             std::strerror(request.error));
    case ExecRequest::Step::kAffinity:
      return InvalidArgument("CPU affinity of " + launch.command.front() + ": " +
                             std::strerror(request.error) +
                             " (a CPU that is offline, or not this launcher's to use)");
    case ExecRequest::Step::kDescriptors:
      return Status::FromErrno(request.error, "descriptors of " + launch.command.front());
    case ExecRequest::Step::kExec:
      return NotExecuted(launch, request.error, candidates[request.failed_candidate]);
  }
  return {};
}

}  // namespace lockstep::process
