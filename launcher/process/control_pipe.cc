#include "launcher/process/control_pipe.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/contract/control_line.h"

namespace lockstep::process {

namespace {

constexpr size_t kMaxUnread = 2 * contract::kMaxControlBytes;

}  // namespace

ControlPipe::ControlPipe(EventLoop& loop, UniqueFd fd) : loop_(loop), fd_(std::move(fd)) {}

ControlPipe::~ControlPipe() { Close(); }

bool ControlPipe::Write(std::string_view line) {
  if (!fd_ || unread_.size() + line.size() > kMaxUnread) return false;
  unread_ += line;
  Flush();
  return bool(fd_);
}

void ControlPipe::Flush() {
  while (!unread_.empty()) {
    const ssize_t size = ::write(fd_.get(), unread_.data(), unread_.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return Watch();
    if (size < 0) return Close();
    unread_.erase(0, static_cast<size_t>(size));
  }
  if (std::exchange(watched_, false)) loop_.Unwatch(fd_.get());
}

void ControlPipe::Watch() {
  if (watched_) return;
  watched_ = loop_.Watch(fd_.get(), EPOLLOUT, [this](uint32_t) { Flush(); }).ok();
  if (!watched_) Close();
}

void ControlPipe::Close() {
  if (std::exchange(watched_, false)) loop_.Unwatch(fd_.get());
  fd_.reset();
  unread_.clear();
}

}  // namespace lockstep::process
