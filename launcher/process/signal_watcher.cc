#include "launcher/process/signal_watcher.h"

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "launcher/process/descendants.h"
#include "launcher/process/guard.h"

namespace lockstep::process {

Result<std::unique_ptr<SignalWatcher>> SignalWatcher::Create(EventLoop& loop, const std::vector<int>& signals,
                                                             Callback callback) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, GuardGoneSignal());
  for (const int signal : signals) {
    // signalfd would report a signal that is ignored as well.
    struct sigaction action;
    if (::sigaction(signal, nullptr, &action) != 0) return Status::FromErrno(errno, "watch signal");
    if (action.sa_handler == SIG_IGN && signal != SIGTERM) continue;
    sigaddset(&set, signal);
  }
  sigset_t old_mask;
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &set, &old_mask); error != 0) {
    return Status::FromErrno(error, "block signals");
  }
  UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) {
    const int error = errno;
    ::pthread_sigmask(SIG_SETMASK, &old_mask, nullptr);
    return Status::FromErrno(error, "signalfd");
  }
  std::unique_ptr<SignalWatcher> watcher(
      new SignalWatcher(loop, std::move(fd), old_mask, std::move(callback)));
  LOCKSTEP_RETURN_IF_ERROR(
      loop.Watch(watcher->fd_.get(), EPOLLIN, [raw = watcher.get()](uint32_t) { raw->OnReadable(); }));
  return watcher;
}

SignalWatcher::SignalWatcher(EventLoop& loop, UniqueFd fd, const sigset_t& old_mask, Callback callback)
    : loop_(loop), fd_(std::move(fd)), old_mask_(old_mask), callback_(std::move(callback)) {}

SignalWatcher::~SignalWatcher() {
  loop_.Unwatch(fd_.get());
  ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

void SignalWatcher::OnReadable() {
  // One signal a call: the callback may destroy this, and the loop calls again while more are there.
  signalfd_siginfo info;
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return;
  const int signal = static_cast<int>(info.ssi_signo);
  if (signal == GuardGoneSignal()) {
    SweepDescendants(std::chrono::seconds(5));
    ::_exit(128 + SIGKILL);
  }
  const Callback callback = callback_;
  callback(signal);
}

}  // namespace lockstep::process
