#pragma once

#include <string>
#include <string_view>

#include "common/event_loop.h"
#include "common/unique_fd.h"

namespace lockstep::process {

// The launcher's end of the pipe of LOCKSTEP_CONTROL_FD. Writing never blocks: what a process does not read
// waits here, and a process that is gone is no failure. The process must ignore SIGPIPE (process::Console
// sees to it). On the loop's thread.
class ControlPipe {
 public:
  // `fd`: a write end, non-blocking; the loop outlives this.
  ControlPipe(EventLoop& loop, UniqueFd fd);
  ~ControlPipe();
  ControlPipe(const ControlPipe&) = delete;
  ControlPipe& operator=(const ControlPipe&) = delete;

  // False, and nothing is written, when the process has not read for long (two lines of the longest are
  // waiting already) or has closed its end.
  bool Write(std::string_view line);

 private:
  void Flush();
  void Watch();
  void Close();

  EventLoop& loop_;
  UniqueFd fd_;
  std::string unread_;  // what the pipe did not take yet
  bool watched_ = false;
};

}  // namespace lockstep::process
