#pragma once

#include <array>
#include <memory>

#include "launcher/process/control_pipe.h"
#include "launcher/process/event_lines.h"
#include "launcher/process/supervisor.h"

// What a Supervisor keeps of one process. For its own source files only.
namespace lockstep::process {

inline constexpr size_t kReadBytes = 64 * 1024;
inline constexpr int kOut = 0, kErr = 1, kEvents = 2;

struct Supervisor::Child {
  ExitReport report;  // what is known of it so far
  ChildProcess process;
  std::array<UniqueFd, 3> pipes;
  std::unique_ptr<ControlPipe> control;
  int signal_sent = 0;  // by AskToStop or Drop, the last one
  bool restarts_alone = false;
  bool spared = false;  // by AskToStop
  bool parked = false;
  EventLines event_lines;
};

}  // namespace lockstep::process
