#include "tests/support/launcher_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <thread>

#include "common/unique_fd.h"
#include "launcher/http/client.h"
#include "tests/paths.h"

namespace lockstep::testing {

namespace {

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> RunArguments(const TemporaryFolder& folder, const nlohmann::json& spec,
                                      const std::vector<std::string>& more) {
  const nlohmann::json manifest = {{"apiVersion", "lockstep.dev/v1alpha1"},
                                   {"kind", "TrainingJob"},
                                   {"metadata", {{"name", "test"}}},
                                   {"spec", spec}};
  std::vector<std::string> arguments = {"run", folder.Write("job.json", manifest.dump()), "--run-dir",
                                        folder.File("run")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace

bool WaitUntil(const std::function<bool()>& condition, Deadline deadline) {
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // between looks; what is looked at decides
  }
  return true;
}

LauncherProcess::LauncherProcess(const Options& options) {
  std::vector<std::string> words = options.wrapper;
  words.push_back(LOCKSTEP_BIN_DIR "/lockstep");
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  std::vector<char*> argv = Pointers(words);
  const UniqueFd out(::open(folder_.File("out").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const UniqueFd err(::open(folder_.File("err").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ == 0) {
    ::dup2(options.input < 0 ? ::open("/dev/null", O_RDONLY) : options.input, 0);
    ::dup2(out.get(), 1);
    ::dup2(err.get(), 2);
    for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
    if (!options.working_directory.empty() && ::chdir(options.working_directory.c_str()) != 0) ::_exit(125);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
}

LauncherProcess::~LauncherProcess() {
  if (exit_code_ < 0) {
    Signal(SIGTERM);
    Signal(SIGINT);
    Wait(InTime(std::chrono::seconds(10)));
  }
}

void LauncherProcess::Signal(int signal) const {
  if (exit_code_ < 0) ::kill(pid_, signal);
}

int LauncherProcess::Wait(Deadline deadline) {
  if (exit_code_ >= 0) return exit_code_;
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  pollfd ended{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  const bool in_time = ::poll(&ended, 1, std::max<int>(0, static_cast<int>(left.count()))) == 1;
  if (!in_time) ::kill(pid_, SIGKILL);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return in_time ? exit_code_ : -1;
}

JobRun::JobRun(const nlohmann::json& spec, const Options& options)
    : launcher_({.arguments = RunArguments(folder_, spec, options.arguments),
                 .environment = options.environment,
                 .wrapper = options.wrapper,
                 .input = options.input}) {}

std::string JobRun::Get(const std::string& path) const {
  std::string address = ReadText(File("http-address"));
  if (address.empty()) return "";
  address.pop_back();
  const auto response = http::Get("http://" + address + path, InTime(std::chrono::seconds(10)));
  return response.ok() ? response->body : "";
}

nlohmann::json JobRun::Status() const { return nlohmann::json::parse(Get("/status"), nullptr, false); }

std::vector<pid_t> JobRun::Pids(int generation, Deadline deadline) const {
  std::vector<pid_t> pids;
  WaitUntil(
      [&] {
        const nlohmann::json status = Status();
        if (!status.is_object() || status["generation"] != generation) return false;
        pids.clear();
        for (const auto& rank : status["ranks"]) {
          if (rank.value("pid", 0) > 0) pids.push_back(rank["pid"]);
        }
        return !pids.empty() && pids.size() == status["ranks"].size();
      },
      deadline);
  return pids;
}

nlohmann::json ProgramSpec(int processes, const std::vector<std::string>& command) {
  return {{"processesPerReplica", processes},
          {"devices", {{"type", "CPU"}}},
          {"program", {{"command", command}}}};
}

nlohmann::json ShellSpec(int processes, const std::string& script) {
  return ProgramSpec(processes, {"sh", "-c", script});
}

bool IsAlive(pid_t pid) {
  const std::string stat = ReadText("/proc/" + std::to_string(pid) + "/stat");
  const size_t end = stat.rfind(')');
  return end != std::string::npos && end + 2 < stat.size() && stat[end + 2] != 'Z' && stat[end + 2] != 'X';
}

}  // namespace lockstep::testing
