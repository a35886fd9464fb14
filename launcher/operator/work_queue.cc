#include "launcher/operator/work_queue.h"

#include <algorithm>

namespace lockstep::op {

namespace {

constexpr std::chrono::milliseconds kFirstPause{5};
constexpr std::chrono::milliseconds kLongestPause{60'000};

}  // namespace

void WorkQueue::AddLocked(const Key& key) {
  if (shut_down_ || !waiting_.insert(key).second) return;
  if (working_.count(key) > 0) return;  // Done adds it
  ready_.emplace_back(key, Clock::now());
  changed_.notify_one();
}

void WorkQueue::Add(const Key& key) {
  const std::lock_guard lock(mutex_);
  AddLocked(key);
}

void WorkQueue::AddAfter(const Key& key, Clock::duration delay) {
  const std::lock_guard lock(mutex_);
  if (shut_down_) return;
  const Clock::time_point time = Clock::now() + delay;
  const auto [found, added] = due_.try_emplace(key, time);
  if (!added) {
    if (found->second <= time) return;
    by_time_.erase({found->second, key});
    found->second = time;
  }
  by_time_.insert({time, key});
  changed_.notify_one();
}

void WorkQueue::AddAfterFailure(const Key& key) {
  std::chrono::milliseconds pause = kFirstPause;
  {
    const std::lock_guard lock(mutex_);
    const int failures = std::min(failures_[key]++, 20);
    pause = std::min(kFirstPause * (1 << failures), kLongestPause);
  }
  AddAfter(key, pause);
}

void WorkQueue::Forget(const Key& key) {
  const std::lock_guard lock(mutex_);
  failures_.erase(key);
}

std::optional<WorkQueue::Clock::time_point> WorkQueue::TakeDue() {
  const Clock::time_point now = Clock::now();
  while (!by_time_.empty() && by_time_.begin()->first <= now) {
    const Key key = by_time_.begin()->second;
    by_time_.erase(by_time_.begin());
    due_.erase(key);
    AddLocked(key);
  }
  if (by_time_.empty()) return std::nullopt;
  return by_time_.begin()->first;
}

std::optional<WorkQueue::Turn> WorkQueue::Get() {
  std::unique_lock lock(mutex_);
  while (!shut_down_) {
    const auto next = TakeDue();
    if (!ready_.empty()) {
      Turn turn{.key = std::move(ready_.front().first), .waited = Clock::now() - ready_.front().second};
      ready_.pop_front();
      waiting_.erase(turn.key);
      working_.insert(turn.key);
      return turn;
    }
    next ? (void)changed_.wait_until(lock, *next) : changed_.wait(lock);
  }
  return std::nullopt;
}

void WorkQueue::Done(const Key& key) {
  const std::lock_guard lock(mutex_);
  working_.erase(key);
  if (waiting_.count(key) == 0 || shut_down_) return;
  ready_.emplace_back(key, Clock::now());
  changed_.notify_one();
}

void WorkQueue::ShutDown() {
  const std::lock_guard lock(mutex_);
  shut_down_ = true;
  changed_.notify_all();
}

size_t WorkQueue::depth() const {
  const std::lock_guard lock(mutex_);
  return ready_.size();
}

}  // namespace lockstep::op
