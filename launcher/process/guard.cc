#include "launcher/process/guard.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include "common/log.h"
#include "launcher/process/descendants.h"
#include "launcher/process/exit_report.h"

namespace lockstep::process {

namespace {

constexpr std::array kForwarded = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr int kInterruptsThatEndAll = 3;

bool IsIgnored(int signal) {
  struct sigaction action;
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

void Say(const std::string& message) { log::WriteLine(log::Level::kError, "lockstep", message); }

[[noreturn]] void RunLauncher(const std::function<int()>& launcher_main, pid_t guard, const sigset_t& mask) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, GuardGoneSignal(), 0, 0, 0);
  if (::getppid() != guard) ::_exit(128 + SIGKILL);  // it died before the line above
  BecomeSubreaper();
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGTTOU, SIG_IGN);
  ::signal(SIGTTIN, SIG_IGN);
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  std::exit(launcher_main());
}

// The guard's whole life: until the launcher has ended; its wait status.
int WatchLauncher(pid_t launcher, const sigset_t& watched, std::set<int>& forwarded) {
  int interrupts = 0;
  while (true) {
    siginfo_t info;
    const int signal = ::sigwaitinfo(&watched, &info);
    if (signal < 0) continue;  // EINTR: stopped and continued
    if (signal != SIGCHLD) {
      forwarded.insert(signal);
      ::kill(launcher, signal);
      if (signal == SIGINT && ++interrupts >= kInterruptsThatEndAll) ::kill(launcher, SIGKILL);
      continue;
    }
    int status = 0;
    pid_t pid;
    while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) {
      if (pid == launcher) return status;
    }
  }
}

}  // namespace

int RunGuarded(const std::function<int()>& launcher_main) {
  std::fflush(nullptr);        // what is buffered now must not be written by both
  ::signal(SIGCHLD, SIG_DFL);  // inherited as ignored, it would make every wait fail

  sigset_t watched, old_mask;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  for (const int signal : kForwarded) {
    if (signal == SIGTERM || !IsIgnored(signal)) sigaddset(&watched, signal);
  }
  // Before the fork: a signal that comes between it and the wait is kept.
  ::pthread_sigmask(SIG_BLOCK, &watched, &old_mask);
  BecomeSubreaper();

  const pid_t guard = ::getpid();
  const pid_t launcher = ::fork();
  if (launcher < 0) {
    Say(std::string("can't start the launcher: fork: ") + std::strerror(errno));
    return 1;
  }
  if (launcher == 0) RunLauncher(launcher_main, guard, old_mask);
  ::signal(SIGTTOU, SIG_IGN);     // what it says must not stop it under `stty tostop`
  ::setpgid(launcher, launcher);  // in both, so that neither is ahead of the other

  std::set<int> forwarded;
  const int status = WatchLauncher(launcher, watched, forwarded);
  const bool swept = SweepDescendants(kSweepLimit);
  if (!swept) {
    std::string left;
    for (const pid_t pid : Descendants(guard)) left += " " + std::to_string(pid);
    Say("processes that could not be killed:" + left);
  }
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);

  const int signal = WTERMSIG(status);
  if (forwarded.count(SIGINT) > 0 && signal == SIGKILL) {
    Say("interrupted repeatedly: the launcher (pid " + std::to_string(launcher) +
        ") and all its processes were killed");
  } else if (forwarded.count(signal) == 0) {
    Say("the launcher (pid " + std::to_string(launcher) + ") was killed by signal " + std::to_string(signal) +
        " (" + SignalInWords(signal) + "); all its processes were killed");
  }
  return 128 + signal;
}

}  // namespace lockstep::process
