#include "launcher/process/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "common/contract/environment.h"
#include "common/contract/exit_codes.h"
#include "launcher/process/exec_child.h"
#include "launcher/process/exec_failure.h"

namespace lockstep::process {

namespace {

constexpr size_t kStackBytes = 64 * 1024;

struct Pipe {
  UniqueFd read, write;
};

// Both ends away from 0–4, which the child gives to others, and the end that stays here non-blocking.
Result<Pipe> MakePipe(UniqueFd Pipe::*ours) {
  std::array<int, 2> fds;
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) return Status::FromErrno(errno, "pipe");
  Pipe pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
  for (UniqueFd* end : {&pipe.read, &pipe.write}) {
    if (end->get() > kLastFdInChild) continue;
    const int moved = ::fcntl(end->get(), F_DUPFD_CLOEXEC, kLastFdInChild + 1);
    if (moved < 0) return Status::FromErrno(errno, "dup of a pipe");
    end->reset(moved);
  }
  if (::fcntl((pipe.*ours).get(), F_SETFL, O_NONBLOCK) != 0)
    return Status::FromErrno(errno, "fcntl of a pipe");
  return pipe;
}

// What becomes the child's standard input, away from 0–4 too.
Result<UniqueFd> OpenInput(int given) {
  UniqueFd null;
  if (given < 0) {
    null.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null) return Status::FromErrno(errno, "open /dev/null");
    if (null.get() > kLastFdInChild) return null;
  }
  UniqueFd moved(::fcntl(given < 0 ? null.get() : given, F_DUPFD_CLOEXEC, kLastFdInChild + 1));
  if (!moved) return Status::FromErrno(errno, "dup of standard input");
  return moved;
}

// What exec is to try, in this order.
std::vector<std::string> Candidates(const Launch& launch) {
  const std::string& program = launch.command.front();
  if (program.find('/') != std::string::npos) return {program};
  std::vector<std::string> candidates;
  const std::string path = SearchPath(launch);
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    candidates.push_back(folder.empty() ? "./" + program : folder + "/" + program);
    begin = end + 1;
  }
  return candidates;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> EnvironmentStrings(const Launch& launch) {
  std::vector<std::string> strings;
  for (const auto& [name, value] : launch.environment) {
    if (name == contract::kEventsFd || name == contract::kControlFd) continue;
    strings.push_back(name + "=" + value);
  }
  strings.push_back(std::string(contract::kEventsFd) + "=" + std::to_string(kEventsFdInChild));
  strings.push_back(std::string(contract::kControlFd) + "=" + std::to_string(kControlFdInChild));
  return strings;
}

// A stack for the child, with a page below it that nobody may touch.
class ChildStack {
 public:
  ChildStack() {
    base_ =
        ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (base_ != MAP_FAILED) ::mprotect(base_, 4096, PROT_NONE);
  }
  ChildStack(const ChildStack&) = delete;
  ChildStack& operator=(const ChildStack&) = delete;
  ~ChildStack() {
    if (ok()) ::munmap(base_, kStackBytes);
  }
  bool ok() const { return base_ != MAP_FAILED; }
  void* top() const { return static_cast<char*>(base_) + kStackBytes; }

 private:
  void* base_;
};

}  // namespace

SpawnFailure SpawnFailureOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kNotFound:
      return SpawnFailure::kNotFound;
    case StatusCode::kPermissionDenied:
    case StatusCode::kInvalidArgument:
      return SpawnFailure::kCannotExecute;
    default:
      return SpawnFailure::kResources;
  }
}

Result<ChildProcess::Spawned> ChildProcess::Spawn(const Launch& launch) {
  if (launch.command.empty() || launch.command.front().empty()) return InvalidArgument("no command given");

  std::array<Pipe, 4> pipes;
  for (size_t i = 0; i < pipes.size(); ++i) {
    Result<Pipe> made = MakePipe(i < 3 ? &Pipe::read : &Pipe::write);
    if (!made.ok()) return made.status();
    pipes[i] = std::move(made).value();
  }
  auto input = OpenInput(launch.input);
  if (!input.ok()) return input.status();
  const ChildStack stack;
  if (!stack.ok()) return Status::FromErrno(errno, "spawn " + launch.command.front());

  // All memory is taken here: the child shares this address space and must not allocate.
  const std::vector<std::string> candidates = Candidates(launch);
  const std::vector<std::string> environment = EnvironmentStrings(launch);
  std::vector<char*> argv = Pointers(launch.command);
  std::vector<char*> envp = Pointers(environment);
  std::vector<char*> paths = Pointers(candidates);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : launch.cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE)
      return InvalidArgument("CPU " + std::to_string(cpu) + " does not exist");
    CPU_SET(cpu, &cpus);
  }

  ExecRequest request;
  request.parent = ::getpid();
  request.descriptors = {input->get(), pipes[0].write.get(), pipes[1].write.get(), pipes[2].write.get(),
                         pipes[3].read.get()};
  request.working_directory = launch.working_directory.empty() ? nullptr : launch.working_directory.c_str();
  request.cpus = launch.cpus.empty() ? nullptr : &cpus;
  request.open_files = launch.open_files;
  request.candidates = paths.data();
  request.argv = argv.data();
  request.envp = envp.data();

  // As posix_spawn does it, which has no parent-death signal: the child borrows this address space until exec
  // while this thread sleeps. No signal handler of ours may run there, so all are blocked until they are
  // reset.
  sigset_t all, old_mask;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &old_mask);
  int pidfd = -1;
  const pid_t pid =
      ::clone(RunExecChild, stack.top(), CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &request, &pidfd);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &old_mask, nullptr);
  if (pid < 0) return Status::FromErrno(error, "start a process for " + launch.command.front());

  Spawned spawned{ChildProcess(pid, UniqueFd(pidfd)),
                  {std::move(pipes[0].read), std::move(pipes[1].read), std::move(pipes[2].read),
                   std::move(pipes[3].write)}};
  if (request.failed != ExecRequest::Step::kNone) return ExecFailure(launch, request, candidates);
  return spawned;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), pidfd_(std::move(other.pidfd_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    KillAndWait();
    pid_ = std::exchange(other.pid_, 0);
    pidfd_ = std::move(other.pidfd_);
  }
  return *this;
}

ChildProcess::~ChildProcess() { KillAndWait(); }

void ChildProcess::KillAndWait() {
  if (pid_ == 0) return;
  SignalGroup(SIGKILL);
  Signal(SIGKILL);
  pollfd ended{pidfd_.get(), POLLIN, 0};
  while (::poll(&ended, 1, -1) < 0 && errno == EINTR) {
  }
  TryWait();
  pid_ = 0;
}

bool ChildProcess::IsOurs() const {
  return pid_ != 0 && ::syscall(SYS_pidfd_send_signal, pidfd_.get(), 0, nullptr, 0) == 0;
}

void ChildProcess::Signal(int signal) const {
  if (IsOurs()) ::kill(pid_, signal);
}

void ChildProcess::SignalGroup(int signal) const {
  if (IsOurs()) ::kill(-pid_, signal);
}

std::optional<ExitStatus> ChildProcess::Wait(int options) const {
  if (pid_ == 0) return std::nullopt;
  siginfo_t info{};
  rusage usage{};
  // The system call rather than waitid(), which doesn't give the usage.
  long result;
  do {
    result = ::syscall(SYS_waitid, P_PID, pid_, &info, WEXITED | WNOHANG | __WALL | options, &usage);
  } while (result != 0 && errno == EINTR);
  // Somebody else has waited for it: nothing is known but that it is gone.
  if (result != 0) return ExitStatus{.exit_code = contract::kExitSignalBase + SIGKILL, .signal = SIGKILL};
  if (info.si_pid == 0) return std::nullopt;
  ExitStatus status;
  status.max_rss_bytes = static_cast<int64_t>(usage.ru_maxrss) * 1024;
  if (info.si_code == CLD_EXITED) {
    status.exit_code = info.si_status;
  } else {
    status.signal = info.si_status;
    status.exit_code = contract::kExitSignalBase + info.si_status;
    status.core_dumped = info.si_code == CLD_DUMPED;
  }
  return status;
}

std::optional<ExitStatus> ChildProcess::Peek() const { return Wait(WNOWAIT); }

std::optional<ExitStatus> ChildProcess::TryWait() {
  std::optional<ExitStatus> status = Wait(0);
  if (status) pid_ = 0;
  return status;
}

}  // namespace lockstep::process
