#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/contract/control_line.h"
#include "common/unique_fd.h"

namespace lockstep::trainer {

// What the launcher tells this process, over the pipe of LOCKSTEP_CONTROL_FD (docs/contract.md,
// "Regrouping"), read on a thread of its own.
class ControlPipe {
 public:
  // Takes over the descriptor that the environment names, if any.
  ControlPipe();
  explicit ControlPipe(UniqueFd pipe);
  ~ControlPipe();
  ControlPipe(const ControlPipe&) = delete;
  ControlPipe& operator=(const ControlPipe&) = delete;

  // Whether there is a launcher that may say something.
  bool open() const;
  // What is called, on the thread, when this process is told to regroup; if it was told since its generation
  // came, at once, here. Null: nothing, and it is remembered. When this returns the one before is not being
  // called any more.
  void Handle(std::function<void()> on_regroup);
  // The environment of the next generation, whose coming makes forgotten that the one before was to regroup.
  // None at the end of the pipe, or of the time.
  std::optional<std::map<std::string, std::string>> AwaitGeneration(std::chrono::milliseconds timeout);

 private:
  void Read();
  void Take(const std::string& line);

  UniqueFd pipe_;
  UniqueFd end_;

  std::mutex calling_;                // held while on_regroup_ is called or changed
  std::function<void()> on_regroup_;  // guarded by it
  bool told_ = false;                 // likewise: to regroup, and nobody has heard it

  mutable std::mutex mutex_;  // guards the two below
  std::condition_variable changed_;
  std::optional<std::map<std::string, std::string>> next_;
  bool ended_ = false;

  std::thread thread_;
};

}  // namespace lockstep::trainer
