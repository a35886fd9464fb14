#include "launcher/job/mps_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "common/contract/environment.h"
#include "common/unique_fd.h"
#include "launcher/placement/text_files.h"

namespace lockstep::job {

namespace {

constexpr auto kStartLimit = std::chrono::seconds(3);
constexpr auto kQuitLimit = std::chrono::seconds(2);
// A socket's path has at most 107 bytes (unix(7)), and the daemon adds names of its own.
constexpr size_t kMaxPipeDirectory = 72;
constexpr size_t kMaxSaid = 2000;

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

struct SpawnActions {
  SpawnActions() { ::posix_spawn_file_actions_init(&actions); }
  ~SpawnActions() { ::posix_spawn_file_actions_destroy(&actions); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  posix_spawn_file_actions_t actions{};
};

struct SpawnAttributes {
  SpawnAttributes() { ::posix_spawnattr_init(&attributes); }
  ~SpawnAttributes() { ::posix_spawnattr_destroy(&attributes); }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;
  posix_spawnattr_t attributes{};
};

// Of a child of ours; empty when it was killed after the limit.
std::optional<int> WaitFor(pid_t pid, std::chrono::milliseconds limit) {
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const auto deadline = std::chrono::steady_clock::now() + limit;
  bool ended = false;
  while (pidfd && !ended) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd watched{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
    const int ready = ::poll(&watched, 1, std::max(0, static_cast<int>(left)));
    if (ready < 0 && errno == EINTR) continue;
    ended = ready == 1;
    if (ready <= 0) break;
  }
  if (!ended) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) return std::nullopt;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

MpsDaemon::MpsDaemon(const Options& options) : options_(options) {}

Result<std::unique_ptr<MpsDaemon>> MpsDaemon::Start(const Options& options) {
  std::unique_ptr<MpsDaemon> daemon(new MpsDaemon(options));
  LOCKSTEP_RETURN_IF_ERROR(daemon->MakeFolders());
  LOCKSTEP_RETURN_IF_ERROR(daemon->Command({"-d"}, "", kStartLimit));
  daemon->started_ = true;
  return daemon;
}

MpsDaemon::~MpsDaemon() {
  if (started_) (void)Command({}, "quit\n", kQuitLimit);
  std::error_code ignored;
  if (!pipe_directory_.empty()) std::filesystem::remove_all(pipe_directory_, ignored);
}

Status MpsDaemon::MakeFolders() {
  log_directory_ = options_.run_folder + "/mps-log";
  if (::mkdir(log_directory_.c_str(), 0700) != 0 && errno != EEXIST) {
    return Status::FromErrno(errno, "MPS: make " + log_directory_);
  }
  std::string name = options_.run_folder + "/mps-XXXXXX";
  if (name.size() > kMaxPipeDirectory) name = "/tmp/lockstep-mps-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) return Status::FromErrno(errno, "MPS: make " + name);
  pipe_directory_ = name;
  return {};
}

Status MpsDaemon::Command(const std::vector<std::string>& arguments, const std::string& input,
                          std::chrono::milliseconds limit) const {
  const std::string operation = "MPS: " + options_.program + (arguments.empty() ? " (quit)" : " -d");
  placement::Environment environment = options_.environment;
  environment["CUDA_MPS_PIPE_DIRECTORY"] = pipe_directory_;
  environment["CUDA_MPS_LOG_DIRECTORY"] = log_directory_;
  environment[contract::kCudaDeviceOrder] = "PCI_BUS_ID";
  std::string devices;
  for (const std::string& device : options_.devices) devices += (devices.empty() ? "" : ",") + device;
  environment[contract::kCudaVisibleDevices] = devices;

  // A pipe holds what little there is to say, so that nobody waits for the other.
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Status::FromErrno(errno, operation);
  const UniqueFd in(ends[0]);
  UniqueFd in_writer(ends[1]);
  if (!input.empty() && ::write(in_writer.get(), input.data(), input.size()) < 0) {
    return Status::FromErrno(errno, operation);
  }
  in_writer.reset();
  // A file and no pipe: the daemon keeps it open for as long as it lives.
  const std::string said = log_directory_ + "/said";
  const UniqueFd out(::open(said.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!out) return Status::FromErrno(errno, operation + ": " + said);

  SpawnActions actions;
  ::posix_spawn_file_actions_adddup2(&actions.actions, in.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions.actions, out.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions.actions, out.get(), STDERR_FILENO);
  SpawnAttributes attributes;
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes.attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes.attributes, &all);
  ::posix_spawnattr_setflags(&attributes.attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  std::vector<std::string> argv = {options_.program};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  std::vector<std::string> envp;
  for (const auto& [name, value] : environment) envp.push_back(name + "=" + value);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, options_.program.c_str(), &actions.actions, &attributes.attributes,
                                  Pointers(argv).data(), Pointers(envp).data());
  if (error != 0) return FailedPrecondition(operation + ": " + std::strerror(error));
  const std::optional<int> code = WaitFor(pid, limit);
  if (code == 0) return {};
  const std::string text = placement::ReadText(said, kMaxSaid).value_or("");
  const std::string how = code ? "exit code " + std::to_string(*code) : "no end in time";
  const std::string_view trimmed = placement::Trim(text);
  return FailedPrecondition(operation + ": " + how + (trimmed.empty() ? "" : ": ") + std::string(trimmed));
}

}  // namespace lockstep::job
