#pragma once

#include <signal.h>

#include <functional>
#include <memory>
#include <vector>

#include "common/event_loop.h"
#include "common/status.h"
#include "common/unique_fd.h"

namespace lockstep::process {

// Turns signals into callbacks of the event loop: no asynchronous handlers anywhere in the launcher.
//
// While it lives the signals are blocked in the calling thread and in the threads it starts, so create it
// before any thread. A signal that was ignored when the program was started (SIGHUP under nohup, SIGINT in
// `cmd &` of a script) stays ignored; SIGTERM never does. The signal that says that the guard has died
// (guard.h) is always watched too: it kills every descendant and exits with 137, without asking anyone.
class SignalWatcher {
 public:
  // Called once for each signal received; several of one kind that arrive together may come as one.
  using Callback = std::function<void(int signal)>;

  static Result<std::unique_ptr<SignalWatcher>> Create(EventLoop& loop, const std::vector<int>& signals,
                                                       Callback callback);
  // Restores the signal mask.
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  SignalWatcher(EventLoop& loop, UniqueFd fd, const sigset_t& old_mask, Callback callback);
  void OnReadable();

  EventLoop& loop_;
  UniqueFd fd_;
  sigset_t old_mask_;
  Callback callback_;
};

}  // namespace lockstep::process
