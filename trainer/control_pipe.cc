#include "trainer/control_pipe.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>
#include <variant>

#include "common/contract/environment.h"
#include "common/log.h"
#include "trainer/inherited_pipe.h"

namespace lockstep::trainer {

namespace {}  // namespace

ControlPipe::ControlPipe() : ControlPipe(InheritedPipe(contract::kControlFd)) {}

ControlPipe::ControlPipe(UniqueFd pipe) : pipe_(std::move(pipe)), ended_(!pipe_) {
  if (!pipe_) return;
  end_.reset(::eventfd(0, EFD_CLOEXEC));
  if (!end_) throw std::system_error(errno, std::generic_category(), "eventfd");
  thread_ = std::thread([this] { Read(); });
}

ControlPipe::~ControlPipe() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!::write(end_.get(), &one, sizeof one);
  thread_.join();
}

bool ControlPipe::open() const {
  const std::lock_guard lock(mutex_);
  return !ended_;
}

void ControlPipe::Handle(std::function<void()> on_regroup) {
  const std::lock_guard lock(calling_);
  on_regroup_ = std::move(on_regroup);
  if (on_regroup_ == nullptr || !std::exchange(told_, false)) return;
  on_regroup_();
}

std::optional<std::map<std::string, std::string>> ControlPipe::AwaitGeneration(
    std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [this] { return next_ || ended_; });
  return std::exchange(next_, std::nullopt);
}

void ControlPipe::Read() {
  std::string received;
  pollfd ready[2] = {{.fd = pipe_.get(), .events = POLLIN, .revents = 0},
                     {.fd = end_.get(), .events = POLLIN, .revents = 0}};
  while (::poll(ready, 2, -1) < 0 || ready[1].revents == 0) {
    if (ready[0].revents == 0) continue;
    char bytes[4096];
    const ssize_t n = ::read(pipe_.get(), bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) break;
    received.append(bytes, static_cast<size_t>(n));
    for (size_t end; (end = received.find('\n')) != std::string::npos; received.erase(0, end + 1)) {
      Take(received.substr(0, end));
    }
    if (received.size() > contract::kMaxControlBytes) {
      log::Warning("control pipe: a line of more than " + std::to_string(contract::kMaxControlBytes) +
                   " bytes; nothing more is read");
      break;
    }
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void ControlPipe::Take(const std::string& line) {
  Result<contract::Control> control = contract::ParseControl(line);
  if (!control.ok()) return log::Warning("control pipe: " + control.status().message());
  if (auto* generation = std::get_if<contract::GenerationControl>(&*control)) {
    {
      const std::lock_guard lock(calling_);
      told_ = false;
    }
    const std::lock_guard lock(mutex_);
    next_ = std::move(generation->environment);
    changed_.notify_all();
    return;
  }
  const std::lock_guard lock(calling_);
  if (on_regroup_ == nullptr) {
    told_ = true;
  } else {
    on_regroup_();
  }
}

}  // namespace lockstep::trainer
