#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "common/event_loop.h"
#include "common/status.h"
#include "launcher/process/child_process.h"

namespace lockstep::process {

// A short program that is run for what it writes, beside everything else: RunProgram (run_program.h) on the
// event loop, and with bounds on its time and its output. How it ends nobody learns, so that a Supervisor,
// which waits for whatever child ends, does no harm. On the loop's thread.
class ProgramRun {
 public:
  struct Options {
    Launch launch;
    std::chrono::milliseconds limit{0};
    size_t most_bytes = 0;
    // Once, from the loop: the beginning of what it wrote to standard output and error. `in_time`: it has
    // ended by itself; otherwise it was killed. It must not destroy the ProgramRun.
    std::function<void(std::string text, bool in_time)> on_end;
  };

  // As ChildProcess::Spawn.
  static Result<std::unique_ptr<ProgramRun>> Start(EventLoop& loop, Options options);
  // Kills it, if it runs, and waits for its end; without on_end.
  ~ProgramRun();
  ProgramRun(const ProgramRun&) = delete;
  ProgramRun& operator=(const ProgramRun&) = delete;

 private:
  ProgramRun(EventLoop& loop, Options options) : loop_(loop), options_(std::move(options)) {}
  Status Watch(ChildProcess::Spawned spawned);
  void Read(UniqueFd& pipe);
  void Close(UniqueFd& pipe);
  void OnEnded();
  void Tell(bool in_time);

  EventLoop& loop_;
  Options options_;
  ChildProcess process_;
  UniqueFd out_, err_;
  bool watched_ = false;  // its pidfd
  EventLoop::TimerId timer_ = 0;
  std::string text_;
};

}  // namespace lockstep::process
