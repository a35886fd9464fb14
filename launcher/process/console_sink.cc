#include "launcher/process/console_sink.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace lockstep::process {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr char kEraseLine[] = "\r\x1b[K";
constexpr size_t kHardLimitFactor = 4;  // above the limit at which a pause is asked for
constexpr auto kRetry = milliseconds(20);

constexpr char kResetColor[] = "\x1b[0m";

// The first `columns` characters, counting every code point as one column and colours (ESC [ … m) as none.
std::string CutToColumns(std::string_view text, size_t columns) {
  size_t count = 0;
  bool colored = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      colored = true;
      i = std::min(text.find('m', i), text.size() - 1);
      continue;
    }
    const bool continues = (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80;
    if (!continues && ++count > columns) return std::string(text.substr(0, i)) + (colored ? kResetColor : "");
  }
  return std::string(text);
}

}  // namespace

ConsoleSink::ConsoleSink(EventLoop& loop, Options options)
    : loop_(loop), options_(std::move(options)), last_progress_(Clock::now()) {
  Open(options_.fd);
}

ConsoleSink::~ConsoleSink() {
  SetStatus({});
  Flush(std::chrono::seconds(1));
  loop_.Cancel(turn_timer_);
  loop_.Cancel(stall_timer_);
  StopAwaiting();
}

// O_NONBLOCK belongs to the open file that other programs share with us (the shell, `tee`), so a terminal or
// pipe is opened anew for it. A regular file never blocks for long and has an offset that must stay shared.
void ConsoleSink::Open(int fd) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return;
  is_terminal_ = ::isatty(fd) == 1;
  if (S_ISSOCK(info.st_mode)) kind_ = Kind::kSocket;
  if (S_ISFIFO(info.st_mode) || is_terminal_) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    fd_.reset(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (fd_) {
      kind_ = Kind::kNonBlocking;
      return;
    }
    if (errno == ENXIO) return;  // a pipe whose reader has gone
  }
  fd_.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
}

void ConsoleSink::Append(std::string_view lines) {
  if (!fd_ || lines.empty()) return;
  if (dropping_ || pending() > kHardLimitFactor * options_.buffer_bytes) {
    dropping_ = true;
    dropped_lines_ += static_cast<uint64_t>(std::count(lines.begin(), lines.end(), '\n'));
    return;
  }
  EraseStatus();
  if (pending() == 0) last_progress_ = Clock::now();
  buffer_ += lines;
  UpdateCongestion();
  ScheduleFlush();
}

void ConsoleSink::SetStatus(std::string_view text) {
  if (!fd_ || !is_terminal_ || (text == status_)) return;
  EraseStatus();
  status_ = text;
  for (char& c : status_) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\x1b') || c == 0x7f) c = ' ';
  }
  ScheduleFlush();
}

void ConsoleSink::EraseStatus() {
  if (!std::exchange(status_drawn_, false)) return;
  if (pending() == 0) last_progress_ = Clock::now();
  buffer_ += kEraseLine;
}

void ConsoleSink::DrawStatus() {
  // A terminal that is behind gets the status line when it has caught up.
  if (status_.empty() || status_drawn_ || dropping_ || congested_) return;
  winsize size{};
  const bool known = ::ioctl(fd_.get(), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  buffer_ += CutToColumns(status_, known ? size.ws_col - 1u : 79);
  status_drawn_ = true;
}

// Everything that is said in one turn of the loop goes out in one write.
void ConsoleSink::ScheduleFlush() {
  if (turn_timer_ != 0 || watching_) return;
  turn_timer_ = loop_.After(milliseconds(0), [this] {
    turn_timer_ = 0;
    OnTurn();
  });
}

void ConsoleSink::OnTurn() {
  if (!fd_) return;
  DrawStatus();
  WriteSome();
  if (pending() > 0) {
    AwaitWritable();
  } else {
    StopAwaiting();
  }
  if (!fd_) return;
  const size_t low = options_.buffer_bytes / 4;
  if (dropping_ && pending() <= low) {
    dropping_ = false;
    Append("lockstep: " + std::to_string(std::exchange(dropped_lines_, 0)) +
           " lines are not shown here, because nobody read them; they are in the log files\n");
  }
  UpdateCongestion();
}

void ConsoleSink::WriteSome() {
  while (pending() > 0) {
    const ssize_t size = WriteOnce(std::string_view(buffer_).substr(written_));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    if (size < 0) {
      // The reader is gone (EPIPE), or the terminal (EIO); a full disk takes nothing of this buffer either.
      const bool gone = errno != ENOSPC && errno != EDQUOT;
      buffer_.clear();
      written_ = 0;
      status_drawn_ = false;
      StopAwaiting();
      if (gone) fd_.reset();
      return;
    }
    last_progress_ = Clock::now();
    written_ += static_cast<size_t>(size);
  }
  if (written_ == buffer_.size() || written_ > options_.buffer_bytes) {
    buffer_.erase(0, written_);
    written_ = 0;
  }
}

ssize_t ConsoleSink::WriteOnce(std::string_view bytes) {
  switch (kind_) {
    case Kind::kNonBlocking:
      return ::write(fd_.get(), bytes.data(), bytes.size());
    case Kind::kSocket:
      return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    case Kind::kBlocking:
      break;
  }
  pollfd writable{fd_.get(), POLLOUT, 0};
  if (::poll(&writable, 1, 0) == 0) {
    errno = EAGAIN;
    return -1;
  }
  return ::write(fd_.get(), bytes.data(), std::min<size_t>(bytes.size(), PIPE_BUF));
}

void ConsoleSink::AwaitWritable() {
  if (watching_ || turn_timer_ != 0) return;
  if (loop_.Watch(fd_.get(), EPOLLOUT, [this](uint32_t) { OnTurn(); }).ok()) {
    watching_ = true;
    return;
  }
  turn_timer_ = loop_.After(kRetry, [this] {  // a kind of file that epoll doesn't know
    turn_timer_ = 0;
    OnTurn();
  });
}

void ConsoleSink::StopAwaiting() {
  if (std::exchange(watching_, false)) loop_.Unwatch(fd_.get());
}

void ConsoleSink::UpdateCongestion() {
  loop_.Cancel(std::exchange(stall_timer_, 0));
  const size_t limit = congested_ ? options_.buffer_bytes / 4 : options_.buffer_bytes;
  bool full = fd_ && !dropping_ && pending() > limit;
  if (full) {
    const auto left = options_.stall_limit - (Clock::now() - last_progress_);
    if (left <= Clock::duration::zero()) {
      dropping_ = true;
      full = false;
    } else {
      stall_timer_ = loop_.After(left, [this] {
        stall_timer_ = 0;
        UpdateCongestion();
      });
    }
  }
  if (congested_ == full) return;
  congested_ = full;
  if (options_.on_change) options_.on_change();
}

bool ConsoleSink::Flush(milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  if (fd_) DrawStatus();
  while (fd_ && pending() > 0) {
    WriteSome();
    if (!fd_ || pending() == 0) break;
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd writable{fd_.get(), POLLOUT, 0};
    ::poll(&writable, 1, static_cast<int>(left));
  }
  if (fd_ && std::exchange(dropping_, false) && dropped_lines_ > 0) {
    Append("lockstep: " + std::to_string(std::exchange(dropped_lines_, 0)) +
           " lines are not shown here, because nobody read them; they are in the log files\n");
    WriteSome();
  }
  return true;
}

}  // namespace lockstep::process
