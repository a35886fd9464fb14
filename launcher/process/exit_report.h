#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::process {

enum class ExitReason {
  kCompleted,      // exit code 0
  kError,          // another exit code
  kSignal,         // a signal that we did not send
  kOutOfMemory,    // SIGKILL by the kernel's out-of-memory killer
  kStopped,        // the signal that we sent
  kCannotExecute,  // never ran: not found (127) or not executable (126)
  kNotStarted,     // never ran: the machine was out of something; retryable
};

// "Completed", "Error", "Signal", "OOMKilled", "Stopped", "CannotExecute", "NotStarted": as manifests and
// metrics have it.
std::string_view ReasonName(ExitReason reason);

// How one rank ended.
struct ExitReport {
  std::string name;  // of what is no rank: Launch::name
  int rank = 0;
  int local_rank = 0;
  std::string role;
  int role_rank = -1;        // among the processes of its role; -1: the job has but one
  bool own_trainer = false;  // its exit codes mean what contract/exit_codes.h says
  pid_t pid = 0;             // 0: never ran
  int exit_code = 0;         // as a shell has it: 128 + n for signal n
  int signal = 0;            // 0: it exited
  bool core_dumped = false;
  ExitReason reason = ExitReason::kCompleted;
  bool asked_to_stop = false;  // we had signalled it before it ended
  std::string detail;          // why it never ran; else empty
  std::string message;         // "rank 4: …" in the words of the launcher that saw it; empty: in ours
  std::string device_trouble;  // what the driver said of its GPU while it ran; filled in by job/
  std::string advice;          // what to do about it, if that is known; likewise
  std::chrono::system_clock::time_point started;
  std::chrono::system_clock::time_point ended;
  int64_t max_rss_bytes = 0;
  std::string core_file;                 // where its core dump is, if that is known
  std::vector<std::string> stack_lines;  // where it stood when it was found hanging; filled in by job/
  std::string stack_file;                // all of that
  std::vector<std::string> last_lines;   // of its output, at most 20; filled in by OutputLog::Complete
  std::string log_file;                  // likewise
};

// Whether it ended otherwise than it should: not by exit code 0, and not because of us. The trainer's exit
// code 75 (checkpointed and stopped) is no failure.
bool IsFailure(const ExitReport& report);

// The failure that the others followed from; null when there is none. It is the first in `reports` (which are
// in the order of exits), but a trainer that only lost its peers (exit codes 11 and 12) gives way to one that
// ended for a reason of its own.
const ExitReport* FirstFailure(const std::vector<ExitReport>& reports);

// "rank 4", or its name; in a job of several roles "rank 4 (ps 1)".
std::string RankInWords(const ExitReport& report);

// "SIGSEGV: invalid memory access"
std::string SignalInWords(int signal);
// "killed by signal 11 (SIGSEGV: invalid memory access), core dumped"; "exit code 127: command not found".
std::string ExitInWords(const ExitReport& report);
// "; its last line: KeyError: 'rank'", cut after 200 bytes; empty where it wrote nothing.
std::string LastLineInWords(const ExitReport& report);

// A line of a process's output with '?' for control characters, so that it can neither forge other lines nor
// disturb a terminal.
std::string Printable(std::string line);

}  // namespace lockstep::process
