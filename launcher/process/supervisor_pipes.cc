#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/log.h"
#include "launcher/process/supervisor_child.h"

// The part of a Supervisor that reads what the processes write.
namespace lockstep::process {

void Supervisor::PauseOutput() {
  if (std::exchange(output_paused_, true)) return;
  // Unwatched rather than watched for nothing: epoll reports a hang-up all the same, and would do so
  // endlessly.
  for (auto& [local_rank, child] : children_) {
    for (const int which : {kOut, kErr}) {
      if (child->pipes[which]) loop_.Unwatch(child->pipes[which].get());
    }
  }
}

void Supervisor::ResumeOutput() {
  if (!std::exchange(output_paused_, false)) return;
  for (auto& [local_rank, child] : children_) {
    for (const int which : {kOut, kErr}) WatchPipe(*child, which);
  }
}

void Supervisor::WatchPipe(Child& child, int which) {
  if (!child.pipes[which] || (output_paused_ && which != kEvents)) return;
  const Status status = loop_.Watch(child.pipes[which].get(), EPOLLIN, [this, raw = &child, which](uint32_t) {
    ReadPipe(*raw, which, kReadBytes);
  });
  if (!status.ok())
    log::Warning("output of rank " + std::to_string(child.report.rank) + ": " + status.message());
}

// Reads once, at most `limit` bytes; 0 when there is nothing more, now or ever.
size_t Supervisor::ReadPipe(Child& child, int which, size_t limit) {
  if (!child.pipes[which]) return 0;
  ssize_t size;
  do {
    size = ::read(child.pipes[which].get(), buffer_.get(), std::min(limit, kReadBytes));
  } while (size < 0 && errno == EINTR);
  if (size < 0 && errno == EAGAIN) return 0;
  if (size <= 0) {
    ClosePipe(child, which);
    return 0;
  }
  const std::string_view bytes(buffer_.get(), static_cast<size_t>(size));
  if (which == kEvents) {
    overlong_event_lines_ += child.event_lines.Feed(bytes, [&](std::string_view line) {
      if (callbacks_.on_event_line) callbacks_.on_event_line(child.report.local_rank, line);
    });
  } else if (callbacks_.on_output) {
    callbacks_.on_output(child.report.local_rank,
                         which == kOut ? OutputStream::kStdout : OutputStream::kStderr, bytes);
  }
  return bytes.size();
}

// What is in the pipe now, and not what others who hold it may go on writing.
void Supervisor::Drain(Child& child, int which) {
  int waiting = 0;
  if (!child.pipes[which] || ::ioctl(child.pipes[which].get(), FIONREAD, &waiting) != 0) return;
  for (size_t left = static_cast<size_t>(std::max(waiting, 0)); left > 0;) {
    const size_t size = ReadPipe(child, which, left);
    if (size == 0) return;
    left -= std::min(left, size);
  }
}

void Supervisor::ClosePipe(Child& child, int which) {
  if (!child.pipes[which]) return;
  loop_.Unwatch(child.pipes[which].get());
  child.pipes[which].reset();
}

// What is left of its output, once nobody writes to it any more.
void Supervisor::Finish(Child& child) {
  for (int which = 0; which < 3; ++which) {
    Drain(child, which);
    ClosePipe(child, which);
  }
  const std::string last = child.event_lines.TakeRest();
  if (!last.empty() && callbacks_.on_event_line) callbacks_.on_event_line(child.report.local_rank, last);
}

}  // namespace lockstep::process
