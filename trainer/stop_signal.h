#pragma once

#include <functional>
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

 private:
  UniqueFd signals_;
  UniqueFd end_;
  std::thread thread_;
};

}  // namespace lockstep::trainer
