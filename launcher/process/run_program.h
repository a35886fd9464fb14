#pragma once

#include <chrono>
#include <string>

#include "common/status.h"
#include "launcher/process/child_process.h"

namespace lockstep::process {

struct ProgramOutput {
  std::string out, err;
  ExitStatus status;
};

// Starts a program, waits for its end and returns what it wrote; blocks. What it leaves behind in its process
// group is killed. kDeadlineExceeded: it has not ended
// within `limit`, and was killed; kResourceExhausted: it wrote more than 1 MiB; others as
// ChildProcess::Spawn.
Result<ProgramOutput> RunProgram(const Launch& launch, std::chrono::seconds limit);

// Of one of our own programs: its log's last error without the time, or all that it wrote to standard error.
std::string LastError(const ProgramOutput& output);

}  // namespace lockstep::process
