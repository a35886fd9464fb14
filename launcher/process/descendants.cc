#include "launcher/process/descendants.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/unique_fd.h"

namespace lockstep::process {

namespace {

struct ProcessState {
  char state = 0;
  pid_t parent = 0;
};

// /proc/PID/stat is "PID (NAME) STATE PPID …", and NAME may hold blanks and parentheses. State 0: it is gone.
ProcessState ReadStat(int proc_fd, pid_t pid) {
  const std::string path = std::to_string(pid) + "/stat";
  const UniqueFd fd(::openat(proc_fd, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return {};
  std::array<char, 512> buffer;
  const ssize_t size = ::read(fd.get(), buffer.data(), buffer.size());
  if (size <= 0) return {};
  const std::string_view text(buffer.data(), static_cast<size_t>(size));
  const size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos || name_end + 4 >= text.size()) return {};
  ProcessState result;
  result.state = text[name_end + 2];
  std::from_chars(text.data() + name_end + 4, text.data() + text.size(), result.parent);
  return result;
}

}  // namespace

void BecomeSubreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

std::vector<pid_t> Descendants(pid_t ancestor) {
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  if (!proc) return {};
  std::unordered_multimap<pid_t, pid_t> children;
  std::unordered_map<pid_t, char> states;
  while (const dirent* entry = ::readdir(proc.get())) {
    const std::string_view name(entry->d_name);
    pid_t pid = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) continue;
    const ProcessState state = ReadStat(::dirfd(proc.get()), pid);
    if (state.state == 0) continue;
    children.emplace(state.parent, pid);
    states.emplace(pid, state.state);
  }

  std::vector<pid_t> found;
  std::vector<pid_t> frontier = {ancestor};
  while (!frontier.empty()) {
    const pid_t parent = frontier.back();
    frontier.pop_back();
    const auto [begin, end] = children.equal_range(parent);
    for (auto it = begin; it != end; ++it) {
      frontier.push_back(it->second);
      const char state = states[it->second];
      if (state != 'Z' && state != 'X') found.push_back(it->second);
    }
    children.erase(parent);  // also ends the walk where a reused pid has made a cycle of it
  }
  return found;
}

bool SweepDescendantsOnce() {
  const auto reap = [] {
    pid_t pid;
    do {
      pid = ::waitpid(-1, nullptr, WNOHANG | __WALL);
    } while (pid > 0 || (pid < 0 && errno == EINTR));
    return pid < 0 && errno == ECHILD;
  };
  if (reap()) return true;
  for (const pid_t pid : Descendants(::getpid())) ::kill(pid, SIGKILL);
  return reap();
}

bool SweepDescendants(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!SweepDescendantsOnce()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    // A death ends the wait early where SIGCHLD is blocked, as it is in the guard.
    sigset_t sigchld;
    sigemptyset(&sigchld);
    sigaddset(&sigchld, SIGCHLD);
    const timespec pause{0, 2'000'000};
    ::sigtimedwait(&sigchld, nullptr, &pause);
  }
  return true;
}

}  // namespace lockstep::process
