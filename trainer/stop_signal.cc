#include "trainer/stop_signal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

namespace lockstep::trainer {

StopSignal::StopSignal(std::function<void()> on_stop) : on_stop_(std::move(on_stop)) {
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, SIGTERM);
  sigaddset(&stops, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &stops, nullptr);
  signals_.reset(::signalfd(-1, &stops, SFD_CLOEXEC));
  end_.reset(::eventfd(0, EFD_CLOEXEC));
  if (!signals_ || !end_) throw std::system_error(errno, std::generic_category(), "signalfd");
  thread_ = std::thread([this] {
    pollfd ready[2] = {{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                       {.fd = end_.get(), .events = POLLIN, .revents = 0}};
    while (::poll(ready, 2, -1) < 0 || ready[1].revents == 0) {
      signalfd_siginfo signal;
      if (ready[0].revents == 0 || ::read(signals_.get(), &signal, sizeof signal) != sizeof signal) continue;
      const std::lock_guard lock(mutex_);
      on_stop_();
    }
  });
}

StopSignal::~StopSignal() {
  const uint64_t one = 1;
  (void)!::write(end_.get(), &one, sizeof one);
  thread_.join();
}

void StopSignal::Handle(std::function<void()> on_stop) {
  const std::lock_guard lock(mutex_);
  on_stop_ = std::move(on_stop);
}

}  // namespace lockstep::trainer
