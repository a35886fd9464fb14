#pragma once

#include <functional>
#include <mutex>
#include <thread>

#include "common/unique_fd.h"

namespace lockstep::trainer {

// Turns SIGTERM and SIGINT into a call, on a thread of its own. To be made before any other thread, so that
// all of them inherit the blocked signals.
class StopSignal {
 public:
  explicit StopSignal(std::function<void()> on_stop);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // What is called from now on, instead; when this returns the one before is not being called any more.
  void Handle(std::function<void()> on_stop);

 private:
  std::mutex mutex_;
  std::function<void()> on_stop_;  // guarded by it
  UniqueFd signals_;
  UniqueFd end_;
  std::thread thread_;
};

}  // namespace lockstep::trainer
