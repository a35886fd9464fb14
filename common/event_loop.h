#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "common/status.h"
#include "common/unique_fd.h"

namespace lockstep {

// One epoll over descriptors and deadlines: the only place where the launcher waits. Everything registered
// here runs on the thread that calls Run(), one callback at a time, so what it drives needs no locks.
//
// A callback may watch, unwatch (itself too), add and cancel timers, and stop the loop. Callbacks must not
// block.
class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using FdCallback = std::function<void(uint32_t epoll_events)>;
  using TimerId = uint64_t;  // never 0

  static Result<std::unique_ptr<EventLoop>> Create();

  // Calls `callback` whenever one of `epoll_events` (EPOLLIN, EPOLLOUT …; level-triggered) holds for `fd`.
  // The loop doesn't own `fd`: unwatch it before closing it.
  Status Watch(int fd, uint32_t epoll_events, FdCallback callback);
  Status ChangeEvents(int fd, uint32_t epoll_events);
  void Unwatch(int fd);

  // Calls `callback` once, not before `delay` has passed.
  TimerId After(Clock::duration delay, std::function<void()> callback);
  // Does nothing for 0 and for a timer that has run.
  void Cancel(TimerId timer);

  // Until Stop().
  void Run();
  // Handles what is ready, waiting at most `limit` for it.
  void RunOnce(Clock::duration limit);
  void Stop() { stopped_ = true; }

 private:
  struct Watched {
    uint64_t serial;
    std::shared_ptr<FdCallback> callback;
  };

  explicit EventLoop(UniqueFd epoll) : epoll_(std::move(epoll)) {}
  void RunDueTimers();

  UniqueFd epoll_;
  bool stopped_ = false;
  uint64_t next_serial_ = 1;
  std::unordered_map<int, Watched> watched_;
  std::map<std::pair<Clock::time_point, TimerId>, std::function<void()>> timers_;
  std::unordered_map<TimerId, Clock::time_point> timer_times_;
};

}  // namespace lockstep
