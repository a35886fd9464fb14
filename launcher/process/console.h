#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/event_loop.h"
#include "launcher/process/child_process.h"

namespace lockstep::process {

class ConsoleSink;

// The launcher's own standard output and error as places for lines, with a status line below them on a
// terminal.
//
// Writing never blocks the event loop. Lines wait in a bounded buffer; when it is full, `on_congestion(true)`
// asks for a pause until `on_congestion(false)`. If the reader takes nothing at all for `stall_limit`
// (ctrl-S, a pager), lines are left out instead, and a line tells later how many. When the reader is gone
// (EPIPE, EIO) everything is dropped. Makes the process ignore SIGPIPE. One thread.
class Console {
 public:
  struct Options {
    int out_fd = 1;
    int err_fd = 2;
    size_t buffer_bytes = 1 << 20;
    std::chrono::milliseconds stall_limit{2000};
  };

  // The descriptors are not owned, and their flags, which other programs share, are left as they are.
  // Where one is closed or can't be written, what goes there is dropped.
  static std::unique_ptr<Console> Create(EventLoop& loop, const Options& options);
  // Erases the status line and flushes, waiting at most a second for the reader.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // `line` with its newline, or several such.
  void Write(OutputStream stream, std::string_view lines);

  // The line that stays at the bottom of the terminal: standard error's, else standard output's. Cut to the
  // terminal's width, in which colours (ESC [ … m) don't count; empty takes it away. Does nothing where
  // neither is a terminal, and where lines are JSON.
  void SetStatusLine(std::string_view text);
  bool has_status_line() const;

  // Whether colours are welcome there: a terminal, no NO_COLOR, and TERM is not "dumb".
  bool ColorsOn(OutputStream stream) const;

  void SetCongestionCallback(std::function<void(bool congested)> on_congestion);

  // Writes out what is buffered, blocking; gives up after `limit`. False when something is left.
  bool Flush(std::chrono::milliseconds limit);

 private:
  Console(EventLoop& loop, const Options& options);
  ConsoleSink& SinkOf(OutputStream stream) const;
  void UpdateCongestion();

  std::shared_ptr<ConsoleSink> out_;
  std::shared_ptr<ConsoleSink> err_;  // the same as out_ where both are the same file, to keep the order
  ConsoleSink* status_sink_ = nullptr;
  bool congested_ = false;
  std::function<void(bool)> on_congestion_;
};

}  // namespace lockstep::process
