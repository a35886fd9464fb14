#include "launcher/process/exec_child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::process {

namespace {

constexpr int kSignals = 64;
constexpr unsigned kMaxFdOfFallback = 65536;

// The kernel's own, which differs from glibc's struct.
struct KernelSigaction {
  void* handler = nullptr;  // SIG_DFL
  unsigned long flags = 0;
  void* restorer = nullptr;
  uint64_t mask = 0;
};

[[gnu::no_sanitize("address", "thread", "undefined")]] int Fail(ExecRequest* request,
                                                                ExecRequest::Step step) {
  request->error = errno;
  request->failed = step;
  ::syscall(SYS_exit_group, 127);
  return 127;
}

[[gnu::no_sanitize("address", "thread", "undefined")]] void ResetSignals() {
  const KernelSigaction default_action;
  for (int signal = 1; signal <= kSignals; ++signal) {
    if (signal == SIGKILL || signal == SIGSTOP) continue;
    ::syscall(SYS_rt_sigaction, signal, &default_action, nullptr, sizeof(uint64_t));
  }
}

[[gnu::no_sanitize("address", "thread", "undefined")]] bool SetDescriptors(const ExecRequest* request) {
  for (int i = 0; i <= kLastFdInChild; ++i) {
    if (::syscall(SYS_dup3, request->descriptors.data()[i], i, 0) < 0) return false;
  }
  if (::syscall(SYS_close_range, kLastFdInChild + 1, ~0u, 0) == 0) return true;
  for (unsigned fd = kLastFdInChild + 1; fd < kMaxFdOfFallback; ++fd) ::syscall(SYS_close, fd);
  return true;
}

[[gnu::no_sanitize("address", "thread", "undefined")]] void SetOpenFiles(uint64_t soft) {
  struct rlimit limit;
  if (::syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, nullptr, &limit) != 0) return;
  limit.rlim_cur = soft < limit.rlim_max ? soft : limit.rlim_max;
  ::syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, nullptr);
}

}  // namespace

[[gnu::no_sanitize("address", "thread", "undefined")]] int RunExecChild(void* argument) {
  auto* const request = static_cast<ExecRequest*>(argument);

  ::syscall(SYS_setpgid, 0, 0);
  ::syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::syscall(SYS_getppid) != request->parent)
    ::syscall(SYS_exit_group, 127);  // it died before the line above

  // Under Yama only an ancestor may look into a process: so a debugger that the launcher starts may, too.
  ::syscall(SYS_prctl, PR_SET_PTRACER, request->parent, 0, 0, 0);

  if (!SetDescriptors(request)) return Fail(request, ExecRequest::Step::kDescriptors);
  if (request->open_files != 0) SetOpenFiles(request->open_files);
  if (request->working_directory != nullptr && ::syscall(SYS_chdir, request->working_directory) != 0) {
    return Fail(request, ExecRequest::Step::kWorkingDirectory);
  }
  if (request->cpus != nullptr &&
      ::syscall(SYS_sched_setaffinity, 0, sizeof(cpu_set_t), request->cpus) != 0) {
    return Fail(request, ExecRequest::Step::kAffinity);
  }
  ResetSignals();
  const uint64_t no_signals = 0;
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &no_signals, nullptr, sizeof(no_signals));

  // As a shell does it: go on after what isn't there, and remember what was there but not executable.
  bool remembered = false;
  int error = ENOENT;
  for (size_t i = 0; request->candidates[i] != nullptr; ++i) {
    ::syscall(SYS_execve, request->candidates[i], request->argv, request->envp);
    const bool absent = errno == ENOENT || errno == ENOTDIR;
    if (absent && ::syscall(SYS_faccessat, AT_FDCWD, request->candidates[i], F_OK) != 0) continue;
    if (!remembered) {
      remembered = true;
      error = absent ? ENOENT : errno;
      request->failed_candidate = i;
    }
    if (error != EACCES) break;
  }
  errno = error;
  return Fail(request, ExecRequest::Step::kExec);
}

}  // namespace lockstep::process
