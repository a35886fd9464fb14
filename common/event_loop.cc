#include "common/event_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace lockstep {

namespace {

// An epoll event carries the descriptor and the low half of its serial: an event that was fetched before the
// descriptor was unwatched, closed and given out again is then told from a new one.
uint64_t Pack(int fd, uint64_t serial) { return (serial << 32) | static_cast<uint32_t>(fd); }

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::Create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return Status::FromErrno(errno, "epoll_create1");
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll)));
}

Status EventLoop::Watch(int fd, uint32_t epoll_events, FdCallback callback) {
  const uint64_t serial = next_serial_++;
  epoll_event event{};
  event.events = epoll_events;
  event.data.u64 = Pack(fd, serial);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return Status::FromErrno(errno, "epoll_ctl add");
  watched_[fd] = {serial, std::make_shared<FdCallback>(std::move(callback))};
  return {};
}

Status EventLoop::ChangeEvents(int fd, uint32_t epoll_events) {
  const auto it = watched_.find(fd);
  if (it == watched_.end()) return NotFound("change of events: descriptor is not watched");
  epoll_event event{};
  event.events = epoll_events;
  event.data.u64 = Pack(fd, it->second.serial);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0)
    return Status::FromErrno(errno, "epoll_ctl mod");
  return {};
}

void EventLoop::Unwatch(int fd) {
  if (watched_.erase(fd) > 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

EventLoop::TimerId EventLoop::After(Clock::duration delay, std::function<void()> callback) {
  const TimerId id = next_serial_++;
  const Clock::time_point when = Clock::now() + delay;
  timers_.emplace(std::make_pair(when, id), std::move(callback));
  timer_times_.emplace(id, when);
  return id;
}

void EventLoop::Cancel(TimerId timer) {
  const auto it = timer_times_.find(timer);
  if (it == timer_times_.end()) return;
  timers_.erase({it->second, timer});
  timer_times_.erase(it);
}

void EventLoop::RunDueTimers() {
  const Clock::time_point now = Clock::now();
  while (!stopped_ && !timers_.empty() && timers_.begin()->first.first <= now) {
    auto node = timers_.extract(timers_.begin());
    timer_times_.erase(node.key().second);
    node.mapped()();
  }
}

void EventLoop::Run() {
  stopped_ = false;
  while (!stopped_) RunOnce(std::chrono::hours(1));
}

void EventLoop::RunOnce(Clock::duration limit) {
  Clock::duration wait = limit;
  if (!timers_.empty()) wait = std::min(wait, timers_.begin()->first.first - Clock::now());
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(wait).count();

  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(),
                                 static_cast<int>(std::max<long>(0, milliseconds)));
  for (int i = 0; i < count && !stopped_; ++i) {
    const int fd = static_cast<int>(events[i].data.u64 & 0xffffffffu);
    const auto it = watched_.find(fd);
    if (it == watched_.end() || Pack(fd, it->second.serial) != events[i].data.u64) continue;
    const std::shared_ptr<FdCallback> callback = it->second.callback;  // outlives its own Unwatch
    (*callback)(events[i].events);
  }
  RunDueTimers();
}

}  // namespace lockstep
