#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include "common/contract/event.h"
#include "common/unique_fd.h"

namespace lockstep::trainer {

// Tells the launcher what happens, over the pipe of LOCKSTEP_EVENTS_FD; without one it says nothing. Never
// throws, and never stops training for long: a launcher that doesn't read for a second loses lines. Safe from
// several threads.
//
// Short steps are told together (StepEvent::steps), so that the telling costs well under 1 % of the training.
class EventWriter {
 public:
  // Takes over the descriptor that the environment names, if any.
  EventWriter();
  explicit EventWriter(UniqueFd pipe) : pipe_(std::move(pipe)) {}

  // Sends what is pending first, so that the lines keep their order.
  void Write(const contract::Event& event);
  void WriteStep(const contract::StepEvent& step);

 private:
  using Clock = std::chrono::steady_clock;

  void Flush();
  void Send(const contract::Event& event);

  std::mutex mutex_;  // guards all below
  UniqueFd pipe_;
  std::optional<contract::StepEvent> pending_;
  Clock::time_point last_step_sent_{};
};

}  // namespace lockstep::trainer
