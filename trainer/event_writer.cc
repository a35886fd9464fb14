#include "trainer/event_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "common/contract/environment.h"
#include "trainer/inherited_pipe.h"

namespace lockstep::trainer {

namespace {

constexpr auto kStepInterval = std::chrono::milliseconds(50);
constexpr int kPatienceMilliseconds = 1000;

UniqueFd PipeThatNeverBlocks() {
  UniqueFd pipe = InheritedPipe(contract::kEventsFd);
  if (pipe) ::fcntl(pipe.get(), F_SETFL, ::fcntl(pipe.get(), F_GETFL) | O_NONBLOCK);
  return pipe;
}

}  // namespace

EventWriter::EventWriter() : EventWriter(PipeThatNeverBlocks()) {}

void EventWriter::Write(const contract::Event& event) {
  std::lock_guard lock(mutex_);
  Flush();
  Send(event);
}

void EventWriter::WriteStep(const contract::StepEvent& step) {
  std::lock_guard lock(mutex_);
  if (pending_) {
    contract::StepEvent sum = step;
    sum.steps += pending_->steps;
    sum.samples += pending_->samples;
    sum.seconds += pending_->seconds;
    sum.collective_seconds += pending_->collective_seconds;
    sum.data_wait_seconds += pending_->data_wait_seconds;
    sum.collective_bytes += pending_->collective_bytes;
    sum.flops += pending_->flops;
    sum.gradients_dropped += pending_->gradients_dropped;
    pending_ = sum;
  } else {
    pending_ = step;
  }
  if (Clock::now() - last_step_sent_ >= kStepInterval) Flush();
}

void EventWriter::Flush() {
  if (!pending_) return;
  Send(*pending_);
  pending_.reset();
  last_step_sent_ = Clock::now();
}

void EventWriter::Send(const contract::Event& event) {
  if (!pipe_) return;
  const std::string line = contract::EncodeEvent(event);
  size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t written = ::write(pipe_.get(), line.data() + sent, line.size() - sent);
    if (written > 0) {
      sent += static_cast<size_t>(written);
      continue;
    }
    if (written < 0 && errno == EINTR) continue;
    pollfd writable{.fd = pipe_.get(), .events = POLLOUT, .revents = 0};
    if (errno != EAGAIN || ::poll(&writable, 1, kPatienceMilliseconds) <= 0) {
      // Half a line would spoil the next one, so the pipe is given up.
      if (sent > 0 || errno != EAGAIN) pipe_.reset();
      return;
    }
  }
}

}  // namespace lockstep::trainer
