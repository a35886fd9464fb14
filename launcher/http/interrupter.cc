#include "launcher/http/interrupter.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <utility>

namespace lockstep::http {

namespace {

// Between two attempts on one socket: a shutdown between creating and connecting has no effect.
constexpr std::chrono::milliseconds kAgain{20};

}  // namespace

void SocketHandle::Adopt(int fd) {
  const std::lock_guard lock(mutex_);
  fd_ = UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

void SocketHandle::ShutDown() {
  const std::lock_guard lock(mutex_);
  if (fd_) ::shutdown(fd_.get(), SHUT_RDWR);
}

Interrupter::Interrupter() : thread_([this] { Run(); }) {}

Interrupter::~Interrupter() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Interrupter::Watch::Watch(Interrupter* interrupter, std::shared_ptr<SocketHandle> socket,
                          Clock::time_point deadline)
    : interrupter_(interrupter) {
  bool first = false;
  {
    const std::lock_guard lock(interrupter_->mutex_);
    entry_ = interrupter_->watched_.emplace(deadline, std::move(socket));
    first = interrupter_->stopped_ || entry_ == interrupter_->watched_.begin();
  }
  if (first) interrupter_->changed_.notify_all();
}

Interrupter::Watch::~Watch() {
  const std::lock_guard lock(interrupter_->mutex_);
  interrupter_->watched_.erase(entry_);
}

void Interrupter::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

bool Interrupter::stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

void Interrupter::Run() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    const Clock::time_point now = Clock::now();
    bool any = false;
    for (auto one = watched_.begin(); one != watched_.end() && (stopped_ || one->first <= now); ++one) {
      one->second->ShutDown();
      any = true;
    }
    if (any) {
      changed_.wait_for(lock, kAgain);
    } else if (watched_.empty()) {
      changed_.wait(lock);
    } else {
      const Clock::time_point next = watched_.begin()->first;  // (the entry may go meanwhile)
      changed_.wait_until(lock, next);
    }
  }
}

}  // namespace lockstep::http
