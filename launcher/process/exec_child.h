#pragma once

#include <sched.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>

// The child's side of ChildProcess::Spawn, between clone and exec.
namespace lockstep::process {

inline constexpr int kEventsFdInChild = 3;
inline constexpr int kControlFdInChild = 4;
inline constexpr int kLastFdInChild = kControlFdInChild;

struct ExecRequest {
  enum class Step { kNone, kDescriptors, kWorkingDirectory, kAffinity, kExec };

  pid_t parent = 0;
  std::array<int, kLastFdInChild + 1> descriptors{};  // what becomes 0, 1 … 4; all above 4
  const char* working_directory = nullptr;
  const cpu_set_t* cpus = nullptr;
  uint64_t open_files = 0;
  char* const* candidates = nullptr;  // paths, ended by null
  char* const* argv = nullptr;
  char* const* envp = nullptr;

  // Written by the child when it could not execute anything.
  Step failed = Step::kNone;
  int error = 0;
  size_t failed_candidate = 0;
};

// For clone(): `request` is an ExecRequest. Runs in the parent's memory, so it makes system calls only, and
// those not through wrappers that a sanitizer intercepts. Returns only on failure; the child's exit code is
// then of no interest.
int RunExecChild(void* request);

}  // namespace lockstep::process
