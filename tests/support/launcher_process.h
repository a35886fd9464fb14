#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace lockstep::testing {

using Deadline = std::chrono::steady_clock::time_point;
// Long enough for a sanitizer's build on a busy machine; only a failure waits for it.
inline Deadline InTime(std::chrono::seconds seconds = std::chrono::seconds(120)) {
  return std::chrono::steady_clock::now() + seconds;
}

// Looks until `condition` holds; false when it did not in time.
bool WaitUntil(const std::function<bool()>& condition, Deadline deadline = InTime());

bool IsAlive(pid_t pid);  // a zombie is not

// The real `lockstep` as a child, with its output kept. Killed, with everything below it, when this goes.
class LauncherProcess {
 public:
  struct Options {
    std::vector<std::string> arguments;  // after "lockstep"
    std::vector<std::pair<std::string, std::string>> environment;
    std::string working_directory;
    std::vector<std::string> wrapper;  // a command in front: {"ip", "netns", "exec", "a"}
    int input = -1;                    // its standard input; -1: /dev/null
  };

  explicit LauncherProcess(const Options& options);
  ~LauncherProcess();
  LauncherProcess(const LauncherProcess&) = delete;
  LauncherProcess& operator=(const LauncherProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // The exit code as a shell gives it; -1, after killing it, when it didn't end in time.
  int Wait(Deadline deadline = InTime());
  bool HasEnded() const { return !IsAlive(pid_); }
  // What it has written so far.
  std::string out() const { return ReadText(folder_.File("out")); }
  std::string err() const { return ReadText(folder_.File("err")); }

 private:
  TemporaryFolder folder_;
  pid_t pid_ = -1;
  int exit_code_ = -1;
};

// `lockstep run` of a manifest given as JSON, with a run folder of its own.
class JobRun {
 public:
  struct Options {
    std::vector<std::string> arguments;  // after the manifest
    std::vector<std::pair<std::string, std::string>> environment;
    std::vector<std::string> wrapper;
    int input = -1;
  };

  // `spec` is the manifest's; the job's name is "test".
  explicit JobRun(const nlohmann::json& spec) : JobRun(spec, Options{}) {}
  JobRun(const nlohmann::json& spec, const Options& options);

  LauncherProcess& launcher() { return launcher_; }
  const LauncherProcess& launcher() const { return launcher_; }
  int Wait(Deadline deadline = InTime()) { return launcher_.Wait(deadline); }
  // A file of the run's folder.
  std::string File(const std::string& name) const { return folder_.File("run/" + name); }
  std::string Log(int rank) const { return ReadText(File("rank-" + std::to_string(rank) + ".log")); }
  // The body of a GET at the launcher's address; empty while there is none.
  std::string Get(const std::string& path) const;
  // /status; null while there is none.
  nlohmann::json Status() const;
  // Waits for ranks' pids of this generation; empty when they don't come.
  std::vector<pid_t> Pids(int generation = 0, Deadline deadline = InTime()) const;

 private:
  TemporaryFolder folder_;
  LauncherProcess launcher_;
};

// {"processesPerReplica": n, "program": {"command": command}} on CPUs.
nlohmann::json ProgramSpec(int processes, const std::vector<std::string>& command);
// A shell script.
nlohmann::json ShellSpec(int processes, const std::string& script);

}  // namespace lockstep::testing
