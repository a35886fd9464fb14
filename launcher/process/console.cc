#include "launcher/process/console.h"

#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "common/log.h"
#include "launcher/process/console_sink.h"

namespace lockstep::process {

namespace {

bool SameFile(int a, int b) {
  struct stat first, second;
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

bool DumbTerminal() {
  const char* const term = std::getenv("TERM");
  return term == nullptr || *term == '\0' || std::string_view(term) == "dumb";
}

}  // namespace

std::unique_ptr<Console> Console::Create(EventLoop& loop, const Options& options) {
  ::signal(SIGPIPE, SIG_IGN);
  return std::unique_ptr<Console>(new Console(loop, options));
}

Console::Console(EventLoop& loop, const Options& options) {
  const auto make = [&](int fd) {
    return std::make_shared<ConsoleSink>(loop,
                                         ConsoleSink::Options{.fd = fd,
                                                              .buffer_bytes = options.buffer_bytes,
                                                              .stall_limit = options.stall_limit,
                                                              .on_change = [this] { UpdateCongestion(); }});
  };
  out_ = make(options.out_fd);
  err_ = SameFile(options.out_fd, options.err_fd) ? out_ : make(options.err_fd);
  if (!DumbTerminal() && log::format() == log::Format::kText) {
    if (err_->is_terminal()) {
      status_sink_ = err_.get();
    } else if (out_->is_terminal()) {
      status_sink_ = out_.get();
    }
  }
}

Console::~Console() { on_congestion_ = nullptr; }

ConsoleSink& Console::SinkOf(OutputStream stream) const {
  return stream == OutputStream::kStdout ? *out_ : *err_;
}

void Console::Write(OutputStream stream, std::string_view lines) { SinkOf(stream).Append(lines); }

void Console::SetStatusLine(std::string_view text) {
  if (status_sink_ != nullptr) status_sink_->SetStatus(text);
}

bool Console::has_status_line() const { return status_sink_ != nullptr; }

bool Console::ColorsOn(OutputStream stream) const {
  const char* const no_color = std::getenv("NO_COLOR");
  return SinkOf(stream).is_terminal() && (no_color == nullptr || *no_color == '\0') && !DumbTerminal();
}

void Console::SetCongestionCallback(std::function<void(bool congested)> on_congestion) {
  on_congestion_ = std::move(on_congestion);
}

void Console::UpdateCongestion() {
  // The first sink is made before the second.
  const bool congested = (out_ && out_->congested()) || (err_ && err_->congested());
  if (std::exchange(congested_, congested) == congested) return;
  if (on_congestion_) on_congestion_(congested);
}

bool Console::Flush(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const bool out = out_->Flush(limit);
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return err_->Flush(std::max(left, std::chrono::milliseconds(0))) && out;
}

}  // namespace lockstep::process
