#include "trainer/prefetcher.h"

#include <algorithm>
#include <utility>

namespace lockstep::trainer {

Prefetcher::Prefetcher(Options options) : options_(std::move(options)), thread_([this] { Work(); }) {}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

size_t Prefetcher::Take(data::Position at) {
  std::unique_lock lock(mutex_);
  if (expected_ != at) {
    ++beginning_;
    position_ = at;
    taken_ = prepared_ = 0;
    failure_ = nullptr;
  }
  ++taken_;
  expected_ = options_.next(at);
  changed_.notify_all();
  changed_.wait(lock, [this] { return prepared_ >= taken_ || failure_ != nullptr; });
  if (prepared_ >= taken_) return (taken_ - 1) % options_.slots;
  expected_.reset();
  std::rethrow_exception(failure_);
}

void Prefetcher::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] {
      const size_t room = std::max(taken_, options_.kept) - options_.kept + options_.slots;
      return ending_ ||
             (beginning_ > 0 && failure_ == nullptr && prepared_ < room && position_.epoch < options_.epochs);
    });
    if (ending_) return;
    const uint64_t beginning = beginning_;
    const data::Position at = position_;
    const size_t slot = prepared_ % options_.slots;
    lock.unlock();
    data::Position next;
    std::exception_ptr failure;
    try {
      options_.prepare(at, slot);
      next = options_.next(at);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (beginning != beginning_) continue;  // nobody wants it any more
    failure_ = failure;
    if (failure == nullptr) {
      ++prepared_;
      position_ = next;
    }
    changed_.notify_all();
  }
}

}  // namespace lockstep::trainer
