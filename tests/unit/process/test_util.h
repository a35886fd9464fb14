#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "common/event_loop.h"
#include "common/unique_fd.h"
#include "launcher/process/child_process.h"
#include "tests/paths.h"

namespace lockstep::process {

inline constexpr auto kDeadline = std::chrono::seconds(30);  // for what should take milliseconds

// A folder of the test's own, removed at its end.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "process-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string ProbePath() { return std::string(LOCKSTEP_BIN_DIR) + "/process_probe"; }

inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteAll(const std::string& path, const std::string& text, mode_t mode = 0644) {
  std::ofstream(path) << text;
  ::chmod(path.c_str(), mode);
}

inline std::vector<std::pair<std::string, std::string>> PlainEnvironment() {
  return {{"PATH", "/usr/local/bin:/usr/bin:/bin"}, {"LC_ALL", "C"}};
}

inline Launch MakeLaunch(int rank, std::vector<std::string> command) {
  Launch launch;
  launch.rank = rank;
  launch.local_rank = rank;
  launch.role = "worker";
  launch.command = std::move(command);
  launch.environment = PlainEnvironment();
  return launch;
}

inline Launch Shell(int rank, const std::string& script) { return MakeLaunch(rank, {"sh", "-c", script}); }

// Runs the loop until `done`; false when the deadline came first.
inline bool RunUntil(EventLoop& loop, const std::function<bool()>& done,
                     std::chrono::milliseconds limit = kDeadline) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!done()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    loop.RunOnce(std::chrono::milliseconds(50));
  }
  return true;
}

inline bool WaitReadable(int fd, std::chrono::milliseconds limit = kDeadline) {
  pollfd readable{fd, POLLIN, 0};
  return ::poll(&readable, 1, static_cast<int>(limit.count())) == 1;
}

// Everything until the end of file, or what came before the deadline.
inline std::string ReadToEnd(int fd) {
  std::string text;
  std::array<char, 65536> buffer;
  while (WaitReadable(fd)) {
    const ssize_t size = ::read(fd, buffer.data(), buffer.size());
    if (size <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(size));
  }
  return text;
}

// A named pipe by which processes that nobody else could follow tell that they live: each writes "NAME PID\n"
// when it is up and keeps its end open. End of file says that all of them are gone.
class LifeLine {
 public:
  explicit LifeLine(const std::string& path) : path_(path) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    fd_.reset(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    EXPECT_TRUE(fd_);
  }
  const std::string& path() const { return path_; }

  // Waits for `count` more of them; their pids.
  std::vector<pid_t> WaitFor(size_t count) {
    std::vector<pid_t> pids;
    while (pids.size() < count) {
      size_t newline;
      while ((newline = text_.find('\n')) == std::string::npos) {
        if (!WaitReadable(fd_.get())) return pids;
        std::array<char, 4096> buffer;
        const ssize_t size = ::read(fd_.get(), buffer.data(), buffer.size());
        if (size <= 0) return pids;
        text_.append(buffer.data(), static_cast<size_t>(size));
      }
      const std::string line = text_.substr(0, newline);
      text_.erase(0, newline + 1);
      pids.push_back(std::atoi(line.substr(line.find(' ') + 1).c_str()));
    }
    return pids;
  }

  // Whether all are gone within the deadline.
  bool WaitForEnd(std::chrono::milliseconds limit = kDeadline) {
    std::array<char, 4096> buffer;
    while (WaitReadable(fd_.get(), limit)) {
      if (::read(fd_.get(), buffer.data(), buffer.size()) == 0) return true;
    }
    return false;
  }

 private:
  std::string path_;
  UniqueFd fd_;
  std::string text_;
};

inline bool Exists(pid_t pid) { return ::kill(pid, 0) == 0; }

inline size_t OpenDescriptors() {
  const std::filesystem::directory_iterator fds("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(fds), end(fds)));
}

}  // namespace lockstep::process
