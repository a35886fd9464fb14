// What the tests of launcher/process start: `process_probe WHAT [ARGUMENTS]`.

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "common/event_loop.h"
#include "launcher/process/guard.h"
#include "launcher/process/signal_watcher.h"
#include "launcher/process/supervisor.h"

namespace lockstep::process {
namespace {

// Tells the test's LifeLine that this process lives; the descriptor stays open on purpose.
void HoldLifeLine(const std::string& path, const std::string& name) {
  const int fd = ::open(path.c_str(), O_WRONLY);
  ::dprintf(fd, "%s %d\n", name.c_str(), ::getpid());
}

[[noreturn]] void PauseForever() {
  while (true) ::pause();
}

int ListDescriptors() {
  DIR* const folder = ::opendir("/proc/self/fd");
  std::vector<int> fds;
  while (const dirent* entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != ::dirfd(folder)) fds.push_back(fd);
  }
  ::closedir(folder);
  std::sort(fds.begin(), fds.end());
  for (const int fd : fds) std::printf("%d ", fd);
  return 0;
}

int PrintStatus() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    for (const char* name : {"SigBlk", "SigIgn", "Cpus_allowed_list"}) {
      if (line.starts_with(std::string(name) + ":")) std::printf("%s\n", line.c_str());
    }
  }
  int death_signal = 0;
  ::prctl(PR_GET_PDEATHSIG, &death_signal);
  struct stat in, null;
  ::fstat(0, &in);
  ::stat("/dev/null", &null);
  std::printf("death signal %d\nstdin is null %d\nleads its group %d\n", death_signal,
              in.st_rdev == null.st_rdev, ::getpgrp() == ::getpid());
  return 0;
}

// The hardest to find: forked twice, in a session of its own, without an environment.
int Orphan(const std::string& life_line) {
  if (::fork() == 0) {
    ::setsid();
    if (::fork() == 0) {
      ::clearenv();
      for (int fd = 0; fd < 4; ++fd) ::close(fd);
      HoldLifeLine(life_line, "orphan");
      PauseForever();
    }
    ::_exit(0);
  }
  return 0;
}

int IgnoreTerm(const std::string& life_line) {
  ::signal(SIGTERM, SIG_IGN);
  HoldLifeLine(life_line, "stubborn");
  PauseForever();
}

// `total` bytes in lines of 100, the first of each line saying which it is.
int Flood(long total) {
  std::string line(100, 'x');
  line.back() = '\n';
  for (long written = 0; written < total; written += 100) {
    std::snprintf(line.data(), line.size(), "%010ld", written / 100);
    line[10] = 'x';
    if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size()) return 1;
  }
  return 0;
}

Launch ProgramLaunch(int rank, std::vector<std::string> command) {
  Launch launch;
  launch.rank = launch.local_rank = rank;
  launch.command = std::move(command);
  launch.environment = {{"PATH", "/usr/bin:/bin"}};
  return launch;
}

Launch ProbeLaunch(int rank, std::vector<std::string> arguments) {
  std::string self(4096, '\0');
  self.resize(static_cast<size_t>(::readlink("/proc/self/exe", self.data(), self.size())));
  arguments.insert(arguments.begin(), self);
  return ProgramLaunch(rank, std::move(arguments));
}

// A whole launcher: two ranks that ignore SIGTERM, each with an orphan. Stops at the first signal with
// code 75.
int LauncherMain(const std::string& life_line, const std::string& mode) {
  HoldLifeLine(life_line, "launcher");
  if (mode == "return") return 42;
  if (mode == "abort") std::abort();
  if (mode == "hang") {
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    PauseForever();
  }
  if (mode == "terminal") {
    char byte;
    const bool read = ::read(0, &byte, 1) >= 0;
    std::printf("read from the terminal: %s\n", read ? "yes" : std::strerror(errno));
    std::fflush(stdout);
  }
  auto loop = std::move(EventLoop::Create()).value();
  int exit_code = 0;
  Supervisor supervisor(*loop, {.on_all_stopped = [&](const auto&) { loop->Stop(); }});
  auto watcher = std::move(SignalWatcher::Create(*loop, {SIGINT, SIGTERM, SIGHUP}, [&](int signal) {
                   exit_code = 128 + signal;
                   supervisor.StopNow();
                 })).value();
  std::vector<Launch> launches;
  if (mode == "eight") {
    for (int rank = 0; rank < 8; ++rank) launches.push_back(ProgramLaunch(rank, {"true"}));
  } else {
    for (int rank = 0; rank < 2; ++rank) launches.push_back(ProbeLaunch(rank, {"family", life_line}));
  }
  if (!supervisor.Start(std::move(launches)).ok()) return 9;
  if (mode == "leave") {  // ends without stopping anything, as a bug would
    loop->RunOnce(std::chrono::milliseconds(0));
    char byte;
    [[maybe_unused]] const ssize_t ignored = ::read(0, &byte, 1);  // until the test has seen all of them
    ::_exit(3);
  }
  loop->Run();
  return exit_code;
}

// In a cgroup given by its folder: one rank that takes memory without end; prints how it ended.
int LauncherInCgroup(const std::string& cgroup) {
  std::ofstream(cgroup + "/cgroup.procs") << ::getpid() << std::flush;
  auto loop = std::move(EventLoop::Create()).value();
  Supervisor supervisor(*loop, {.on_exit =
                                    [](ExitReport& report) {
                                      std::printf("%s %d %d\n",
                                                  std::string(ReasonName(report.reason)).c_str(),
                                                  report.signal, report.max_rss_bytes > (8 << 20));
                                    },
                                .on_all_stopped = [&](const auto&) { loop->Stop(); }});
  if (!supervisor.Start({ProgramLaunch(0, {"tail", "/dev/zero"})}).ok()) return 9;
  loop->Run();
  return 0;
}

int Main(const std::vector<std::string>& arguments) {
  const std::string what = arguments.empty() ? "" : arguments[0];
  const std::string first = arguments.size() > 1 ? arguments[1] : "";
  if (what == "descriptors") return ListDescriptors();
  if (what == "status") return PrintStatus();
  if (what == "orphan") return Orphan(first);
  if (what == "ignore-term") return IgnoreTerm(first);
  if (what == "flood") return Flood(std::atol(first.c_str()));
  if (what == "segv") return ::raise(SIGSEGV);
  if (what == "family") {
    Orphan(first);
    return IgnoreTerm(first);
  }
  if (what == "guarded") return RunGuarded([&] { return LauncherMain(first, arguments.at(2)); });
  if (what == "launcher-in-cgroup") return LauncherInCgroup(first);
  std::fprintf(stderr, "process_probe: don't know %s\n", what.c_str());
  return 2;
}

}  // namespace
}  // namespace lockstep::process

int main(int argc, char** argv) { return lockstep::process::Main({argv + 1, argv + argc}); }
