#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "common/event_loop.h"
#include "common/unique_fd.h"

namespace lockstep::process {

// One descriptor of a Console: a bounded buffer in front of it, a status line after it, and the rule of what
// happens when nobody reads (console.h says it). One thread.
class ConsoleSink {
 public:
  struct Options {
    int fd = 1;  // not owned
    size_t buffer_bytes = 1 << 20;
    std::chrono::milliseconds stall_limit{2000};
    std::function<void()> on_change;  // congested() may have changed
  };

  ConsoleSink(EventLoop& loop, Options options);
  ~ConsoleSink();
  ConsoleSink(const ConsoleSink&) = delete;
  ConsoleSink& operator=(const ConsoleSink&) = delete;

  void Append(std::string_view lines);
  void SetStatus(std::string_view text);
  bool Flush(std::chrono::milliseconds limit);

  bool is_terminal() const { return is_terminal_; }
  bool congested() const { return congested_; }

 private:
  enum class Kind { kNonBlocking, kSocket, kBlocking };

  void Open(int fd);
  size_t pending() const { return buffer_.size() - written_; }
  void EraseStatus();
  void DrawStatus();
  void ScheduleFlush();
  void OnTurn();
  void WriteSome();
  ssize_t WriteOnce(std::string_view bytes);
  void AwaitWritable();
  void StopAwaiting();
  void UpdateCongestion();

  EventLoop& loop_;
  Options options_;
  UniqueFd fd_;  // empty: nobody is there
  Kind kind_ = Kind::kBlocking;
  bool is_terminal_ = false;

  std::string buffer_;
  size_t written_ = 0;  // of the buffer
  std::chrono::steady_clock::time_point last_progress_;
  bool watching_ = false;
  EventLoop::TimerId turn_timer_ = 0;
  EventLoop::TimerId stall_timer_ = 0;

  bool congested_ = false;
  bool dropping_ =
      false;  // nothing was taken for stall_limit: lines are left out until the buffer has drained
  uint64_t dropped_lines_ = 0;

  std::string status_;
  bool status_drawn_ = false;
};

}  // namespace lockstep::process
