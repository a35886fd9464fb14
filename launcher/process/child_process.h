#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"

namespace lockstep::process {

// One process to be started.
struct Launch {
  std::string name;  // of what is no rank: "prepare"
  int rank = 0;
  int local_rank = 0;  // different for every launch of a generation on this machine
  std::string role;
  int role_rank = -1;           // among the processes of its role; -1: the job has but one
  bool own_trainer = false;     // its exit codes mean what contract/exit_codes.h says
  bool restarts_alone = false;  // Supervisor::Restart: its group ends with it
  std::vector<std::string>
      command;  // at least the program: a path, or a name to be found in the environment's PATH
  std::vector<std::pair<std::string, std::string>> environment;  // complete: nothing is inherited
  std::string working_directory;                                 // empty: the launcher's
  std::vector<int> cpus;                                         // affinity; empty: the launcher's
  int input = -1;           // a descriptor, not owned, that becomes its standard input; -1: /dev/null
  uint64_t open_files = 0;  // soft RLIMIT_NOFILE, if the launcher raised its own; 0: the launcher's
};

enum class OutputStream { kStdout, kStderr };

// The launcher's ends of a child's pipes, non-blocking and close-on-exec.
struct ChildPipes {
  UniqueFd out;
  UniqueFd err;
  UniqueFd events;
  UniqueFd control;  // to write to
};

// How a process ended.
struct ExitStatus {
  int exit_code = 0;  // as a shell has it: 128 + n when signal n ended it
  int signal = 0;     // 0: it exited
  bool core_dumped = false;
  int64_t max_rss_bytes = 0;
};

// Why a process could not be started, besides the status. kNotFound and kCannotExecute are permanent.
enum class SpawnFailure { kNotFound, kCannotExecute, kResources };
SpawnFailure SpawnFailureOf(const Status& status);

// An owned process: its pid can't be reused while this lives. Move-only.
//
// The child is the leader of a process group of its own, is killed when the thread that spawned it ends (so
// spawn from a thread that lives as long as the launcher), has default signal handling, and no descriptors
// but 0, 1, 2, the events pipe, whose number (3) is in LOCKSTEP_EVENTS_FD, and the control pipe (4,
// LOCKSTEP_CONTROL_FD).
class ChildProcess {
 public:
  struct Spawned;

  // Returns when the program runs (after exec). Failures name the file: kNotFound: there is no such program
  // (a shell's 127); kPermissionDenied, kInvalidArgument: it is there but can't be executed, or its
  // interpreter, the working directory or a CPU is wrong (126); others: the machine is out of something.
  static Result<Spawned> Spawn(const Launch& launch);

  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  // Kills the group of a process that has not been waited for, and waits for it.
  ~ChildProcess();

  // 0 when there is none: moved from, or waited for.
  pid_t pid() const { return pid_; }
  // Readable once the process has ended.
  int pidfd() const { return pidfd_.get(); }

  // Both do nothing when there is no process any more, even where somebody else has waited for it.
  void Signal(int signal) const;
  void SignalGroup(int signal) const;

  // How it ended (without the memory it used); empty while it runs. It stays to be waited for.
  std::optional<ExitStatus> Peek() const;
  // Releases an ended process; empty while it runs.
  std::optional<ExitStatus> TryWait();

 private:
  ChildProcess(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  std::optional<ExitStatus> Wait(int options) const;
  void KillAndWait();
  // It is not waited for: its number, and its group's, cannot be another's.
  bool IsOurs() const;

  pid_t pid_ = 0;
  UniqueFd pidfd_;
};

struct ChildProcess::Spawned {
  ChildProcess process;
  ChildPipes pipes;
};

}  // namespace lockstep::process
