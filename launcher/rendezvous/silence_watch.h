#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "common/event_loop.h"

namespace lockstep::rendezvous {

// Calls `on_silent` once when nothing has been heard of a peer for `silence`.
//
// If this process itself stood still meanwhile (stopped, or on a machine that was suspended), that says
// nothing of the peer: it gets the time of two heartbeats more.
class SilenceWatch {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    EventLoop* loop = nullptr;
    Clock::duration heartbeat{};
    Clock::duration silence{};
    std::function<void()> on_silent;  // may destroy the watch
  };

  // The peer was heard just now.
  explicit SilenceWatch(Options options);
  ~SilenceWatch();
  SilenceWatch(const SilenceWatch&) = delete;
  SilenceWatch& operator=(const SilenceWatch&) = delete;

  void Heard();

 private:
  void Arm(Clock::duration delay);
  void Check();

  const Options options_;
  Clock::time_point last_heard_;
  Clock::time_point due_;
  bool excused_ = false;
  EventLoop::TimerId timer_ = 0;
};

// "4 s", "0.2 s"
std::string InSeconds(SilenceWatch::Clock::duration duration);

}  // namespace lockstep::rendezvous
